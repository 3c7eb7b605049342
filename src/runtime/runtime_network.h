#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/log.h"
#include "hawser/transports.h"
#include "transport/network.h"
#include "transport/tcp/tcp_network.h"

namespace hawser::runtime {

// Owns the objects of a Runtime as long as the Runtime or a user of it exists: byte streams of this machine, and the
// transports in use. Thread-safe.
class RuntimeNetwork final : public transport::Network {
 public:
  explicit RuntimeNetwork(LogSink log) : log_(std::move(log)) {}
  ~RuntimeNetwork() override;

  Result<std::unique_ptr<transport::Listener>> listen(Loop& loop, std::string_view address,
                                                      transport::AcceptSink& sink) override {
    return streams_.listen(loop, address, sink);
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop& loop, std::string address, Duration timeout) override {
    return streams_.connect(loop, std::move(address), timeout);
  }
  std::vector<std::shared_ptr<transport::Transport>> transports(const TransportOptions& options) override;
  std::vector<std::string_view> transport_names() const override;

  std::uint64_t in_use() const;
  std::uint64_t not_shared() const noexcept { return not_shared_.load(std::memory_order_relaxed); }

 private:
  struct InUse {
    TransportSpec spec;
    std::weak_ptr<transport::Transport> path;
  };
  // Limit of the log lines about options that differ; each line is logged once.
  static constexpr std::size_t lines_max = 256;

  std::shared_ptr<transport::Transport> get(const TransportSpec& wanted, std::vector<std::string>& lines);
  void adopt(std::shared_ptr<void> kept);

  const LogSink log_;
  transport::TcpNetwork streams_;
  std::atomic<std::uint64_t> not_shared_{0};
  mutable std::mutex mutex_;  // Guards the following members.
  std::vector<InUse> paths_;
  std::map<std::string, std::shared_ptr<void>, std::less<>> kept_;  // By transport name: see Factory::make().
  std::vector<std::shared_ptr<void>> adopted_;  // Kept objects of runtimes that have been destroyed.
  std::set<std::string> logged_;
};

}  // namespace hawser::runtime
