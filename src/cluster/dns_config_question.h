#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cluster/dns_config.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/timer.h"
#include "transport/tcp/dns_channel.h"

namespace hawser::cluster {

// Asks name servers for the service config of a name. Few names have one, so it is asked for beside the list, which
// does not wait for it. Loop's thread only.
class DnsConfigQuestion final : transport::DnsChannel::RecordAsker {
 public:
  // `answered` is called after each answer, but not from within ask().
  explicit DnsConfigQuestion(std::function<void(Result<std::string>)> answered);
  DnsConfigQuestion(const DnsConfigQuestion&) = delete;
  DnsConfigQuestion& operator=(const DnsConfigQuestion&) = delete;
  ~DnsConfigQuestion();

  // No effect while an earlier question is open.
  void ask(Loop& loop, std::shared_ptr<transport::DnsChannel> channel, const std::string& name);

 private:
  void on_records(const transport::DnsChannel::Records& records) noexcept override;
  Result<std::string> config_in(const transport::DnsChannel::Records& records) const;
  void report() noexcept;

  const std::function<void(Result<std::string>)> answered_;
  const DnsConfigClient client_;
  Loop* loop_ = nullptr;
  std::shared_ptr<transport::DnsChannel> channel_;  // While a question is open.
  Result<std::string> answer_;
  MemberTimer<&DnsConfigQuestion::report> reporter_{*this};
};

}  // namespace hawser::cluster
