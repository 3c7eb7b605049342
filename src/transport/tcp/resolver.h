#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "hawser/loop.h"
#include "transport/tcp/address_list.h"
#include "transport/tcp/dns_channel.h"

namespace hawser::transport {

// Resolves one host name on a loop without blocking it: from /etc/hosts, or by asking DNS for both families at the same
// time. IPv4 addresses that arrive first wait resolution_delay for IPv6 addresses (RFC 8305, section 3). Destroying the
// resolver withdraws the questions. Loop's thread only.
class Resolver final : DnsChannel::Asker {
 public:
  static constexpr Duration resolution_delay = std::chrono::milliseconds(50);

  // Fills `list`, which outlives this, from the constructor on, and completes it.
  Resolver(Loop& loop, const HostPort& where, AddressList& list, NameService& names);
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  ~Resolver();

 private:
  struct Answer {
    int status = 0;
    bool done = false;
    std::vector<SocketAddress> found;
  };

  void begin(const HostPort& where, NameService& names);
  void from_hosts_file(const HostPort& where, HostsFile& hosts);
  void fail_with(const std::string& why);
  void on_answer(int family, int status, std::vector<SocketAddress> found) noexcept override;
  void on_tick() noexcept override;
  void settle();
  void release(Answer& answer);

  Loop& loop_;
  AddressList& list_;
  const std::string host_;
  std::shared_ptr<DnsChannel> channel_;  // The channel with the open questions, if any.
  std::array<Answer, 2> answers_;        // For IPv6, then IPv4.
  Time v4_came_{};
};

}  // namespace hawser::transport
