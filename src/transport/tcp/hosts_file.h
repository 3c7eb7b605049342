#pragma once

#include <sys/stat.h>

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/tcp/socket.h"

namespace hawser::transport {

// The names of /etc/hosts. The file is read again only when it has changed, because reading a long one takes tens of
// milliseconds. Any thread.
class HostsFile {
 public:
  explicit HostsFile(std::string path) : path_(std::move(path)) {}

  // Returns the addresses of `host`, at most AddressList::addresses_max, in the order of the file.
  std::vector<SocketAddress> find(std::string_view host, std::uint16_t port);
  // Returns how often the file was read.
  std::size_t reads() const;

 private:
  // 16 bytes for IPv6, 4 bytes for IPv4.
  struct Entry {
    int family = 0;
    unsigned char bytes[16] = {};
  };

  using Names = std::unordered_map<std::string, std::vector<Entry>>;  // Names are in lower case.

  void read_if_changed();
  Names read(std::string_view text);

  const std::string path_;
  mutable std::mutex mutex_;  // Guards the members below.
  struct stat seen_{};
  std::size_t reads_ = 0;
  Names by_name_;
};

}  // namespace hawser::transport
