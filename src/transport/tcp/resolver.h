#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "exec/poller.h"
#include "hawser/loop.h"
#include "transport/tcp/address_list.h"

struct ares_addrinfo;
struct ares_channeldata;

namespace hawser::transport {

struct ResolverOptions {
  // Name servers as "address:port,...". Empty: those of /etc/resolv.conf.
  std::string servers = {};
};

// Resolves one host's name on a loop, without blocking it: by /etc/hosts, else by asking DNS for both families at once.
// IPv4 addresses that come first wait resolution_delay for IPv6 ones (RFC 8305, section 3). Destroying it withdraws the
// questions. Loop's thread only.
class Resolver final : Timer {
 public:
  static constexpr Duration resolution_delay = std::chrono::milliseconds(50);

  // Fills `list`, which outlives this, from the constructor on, and completes it.
  Resolver(Loop& loop, const HostPort& where, AddressList& list, const ResolverOptions& options);
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  ~Resolver();

 private:
  // A socket of c-ares'.
  struct Watch final : exec::Watcher {
    Watch(Resolver& of, int socket) noexcept : owner(of), fd(socket) {}
    void on_ready(exec::Readiness readiness) override;
    Resolver& owner;
    const int fd;
    bool open = true;
    bool watched = false;  // By the poller; otherwise looked at by every tick only.
  };
  struct Query {
    Resolver* owner = nullptr;
    int family = 0;
    int status = 0;
    bool done = false;
    std::vector<SocketAddress> found;
  };

  void begin(const HostPort& where, const ResolverOptions& options);
  void close() noexcept;
  void from_hosts_file(const HostPort& where);
  void from_dns(const HostPort& where);
  void fail_with(const std::string& why);
  void settle();
  void release(Query& query);
  void process(int readable, int writable);
  static void on_socket(void* self, int fd, int readable, int writable) noexcept;
  static void on_answer(void* query, int status, int timeouts, ares_addrinfo* result) noexcept;
  static void on_tick(Timer& timer) noexcept;

  Loop& loop_;
  AddressList& list_;
  const std::string host_;
  ares_channeldata* channel_ = nullptr;
  std::array<Query, 2> queries_;  // For IPv6, then IPv4.
  std::vector<std::unique_ptr<Watch>> watches_;
  Time v4_came_{};
  bool closing_ = false;
};

}  // namespace hawser::transport
