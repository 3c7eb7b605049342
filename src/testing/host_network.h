#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/network.h"
#include "transport/sim/sim_network.h"

namespace hawser::testing {

// The simulated network as one host sees it: attempts to connect come from this host, and addresses without a host,
// such as "0.0.0.0:80" and "localhost:80", belong to it. One loop uses it.
class HostNetwork final : public transport::Network {
 public:
  // `*loop` is set before the first use, and null after the loop has ended.
  HostNetwork(std::string host, std::shared_ptr<transport::SimNetwork> network, std::shared_ptr<Loop*> loop)
      : host_(std::move(host)), network_(std::move(network)), loop_(std::move(loop)) {}

  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override;
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override;

 private:
  std::string own(std::string_view address) const;

  const std::string host_;
  const std::shared_ptr<transport::SimNetwork> network_;
  const std::shared_ptr<Loop*> loop_;
};

}  // namespace hawser::testing
