#include "transport/tcp/resolver.h"

#include <ares.h>
#include <netinet/in.h>

#include <exception>
#include <utility>

#include "base/ascii_case.h"

namespace hawser::transport {
namespace {

bool is_or_ends_with(std::string_view host, std::string_view domain) noexcept {
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.size() < domain.size()) return false;
  return equal_without_case(host.substr(host.size() - domain.size()), domain) &&
         (host.size() == domain.size() || host[host.size() - domain.size() - 1] == '.');
}

}  // namespace

Resolver::Resolver(Loop& loop, const HostPort& where, AddressList& list, NameService& names)
    : loop_(loop), list_(list), host_(where.host) {
  begin(where, names);
}

void Resolver::begin(const HostPort& where, NameService& names) {
  // No server knows the name, and none needs to be asked (RFC 6761, section 6.4).
  if (is_or_ends_with(host_, "invalid")) return fail_with("names that end in .invalid do not exist (RFC 6761)");
  from_hosts_file(where, names.hosts());
  if (list_.completed()) return;
  Result<std::shared_ptr<DnsChannel>> channel = names.channel(loop_);
  if (!channel) return fail_with(channel.error().text);
  channel_ = std::move(*channel);
  try {
    channel_->ask(*this, where);
  } catch (...) {
    channel_->withdraw(*this);
    throw;
  }
}

Resolver::~Resolver() {
  if (channel_ != nullptr) channel_->withdraw(*this);
}

void Resolver::fail_with(const std::string& why) {
  list_.complete(Error::of_connection(ErrorCode::unavailable, "cannot resolve '" + host_ + "': " + why));
}

void Resolver::from_hosts_file(const HostPort& where, HostsFile& hosts) {
  const auto port = static_cast<std::uint16_t>(std::stoi(where.port));
  for (const SocketAddress& one : hosts.find(host_, port)) list_.add(one);
  // Every machine uses this name for itself (RFC 6761, section 6.3).
  if (list_.empty() && is_or_ends_with(host_, "localhost")) {
    const in_addr v4{htonl(INADDR_LOOPBACK)};
    list_.add(address_of(AF_INET6, &in6addr_loopback, port));
    list_.add(address_of(AF_INET, &v4, port));
  }
  if (!list_.empty()) list_.complete();
}

void Resolver::on_answer(int family, int status, std::vector<SocketAddress> found) noexcept {
  Answer& answer = answers_[family == AF_INET6 ? 0 : 1];
  answer.done = true;
  answer.status = status;
  answer.found = std::move(found);
  on_tick();
}

void Resolver::on_tick() noexcept {
  try {
    settle();
  } catch (const std::exception&) {
    list_.complete();
  }
}

void Resolver::release(Answer& answer) {
  for (const SocketAddress& one : std::exchange(answer.found, {})) list_.add(one);
}

// Adds the addresses to the list that may be tried by now.
void Resolver::settle() {
  auto& [v6, v4] = answers_;
  if (v6.done) release(v6);
  if (v4.done) {
    if (v4_came_ == Time{}) v4_came_ = loop_.now();
    if (v6.done || loop_.now() - v4_came_ >= resolution_delay) release(v4);
  }
  if (!v6.done || !v4.done || list_.completed()) return;
  // Reports the error of the family that failed for another reason than "there is no such record".
  fail_with(ares_strerror(v4.status == ARES_SUCCESS || v4.status == ARES_ENODATA ? v6.status : v4.status));
}

}  // namespace hawser::transport
