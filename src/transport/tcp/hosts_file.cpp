#include "transport/tcp/hosts_file.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/ascii_case.h"
#include "os/contents_of_file.h"
#include "transport/tcp/address_list.h"
#include "transport/tcp/words.h"

namespace hawser::transport {
namespace {

// Returns `host` in lower case, without the dot that ends a full name.
std::string lower(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  return in_lower_case(host);
}

bool same_file(const struct stat& a, const struct stat& b) noexcept {
  const auto same_time = [](const timespec& x, const timespec& y) {
    return x.tv_sec == y.tv_sec && x.tv_nsec == y.tv_nsec;
  };
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size && same_time(a.st_mtim, b.st_mtim) &&
         same_time(a.st_ctim, b.st_ctim);
}

}  // namespace

std::vector<SocketAddress> HostsFile::find(std::string_view host, std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  read_if_changed();
  std::vector<SocketAddress> addresses;
  const auto found = by_name_.find(lower(host));
  if (found == by_name_.end()) return addresses;
  for (const Entry& entry : found->second) addresses.push_back(address_of(entry.family, entry.bytes, port));
  return addresses;
}

std::size_t HostsFile::reads() const {
  const std::lock_guard lock(mutex_);
  return reads_;
}

void HostsFile::read_if_changed() {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0) now = {};
  if (same_file(now, seen_)) return;
  const Result<std::optional<std::string>> text =
      now.st_ino != 0 ? contents_of_file(path_) : std::optional<std::string>();
  if (!text) return;  // The names that are known stay, and the next call tries again.
  by_name_ = *text ? read(**text) : Names();
  seen_ = now;  // It was the state before the file was read, so that a later change is detected.
}

HostsFile::Names HostsFile::read(std::string_view text) {
  ++reads_;
  Names names;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    const std::string address(next_word(line));
    Entry entry;
    entry.family = AF_INET;
    if (inet_pton(AF_INET, address.c_str(), entry.bytes) != 1) {
      entry.family = AF_INET6;
      if (inet_pton(AF_INET6, address.c_str(), entry.bytes) != 1) continue;
    }
    for (std::string_view name = next_word(line); !name.empty(); name = next_word(line)) {
      std::vector<Entry>& entries = names[lower(name)];
      if (entries.size() < AddressList::addresses_max) entries.push_back(entry);
    }
  }
  return names;
}

}  // namespace hawser::transport
