#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/cluster_monitor.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {
namespace rpc {

// A ClusterClient at one time.
struct ClusterReport {
  std::uint64_t number = 0;  // Clients have numbers in the order of their creation.
  std::string name;
  std::string_view balancing;
  std::string routes;  // For people. Empty: all calls are served alike.
  NamingState naming;  // Without its endpoints.
  Duration list_age{};
  std::size_t endpoints = 0;  // The list, or the subset that the balancing uses.
  std::size_t idle = 0;
  std::size_t connecting = 0;
  std::size_t ready = 0;
  std::size_t failed = 0;
  std::size_t excluded = 0;  // Ready ones, as outliers or by their breakers.
  std::size_t calls_in_flight = 0;
  double retry_tokens = 0;
  bool may_retry = false;
  std::vector<EndpointState> rows;
};

struct ClusterReports {
  std::vector<ClusterReport> found;
  std::size_t all = 0;     // Clients that exist.
  std::size_t silent = 0;  // Clients whose loops did not answer: something blocks them.
  std::uint64_t next = 0;  // The first client that was not asked; 0: none.
};

// A client whose loop is asked for reports.
class MonitoredCluster {
 public:
  // On the client's loop. With at most `limit` endpoints from number `from` of its list on.
  virtual ClusterReport report(std::size_t from, std::size_t limit) const = 0;

 protected:
  ~MonitoredCluster() = default;
};

}  // namespace rpc

struct ClusterMonitor::State {
  static constexpr Duration wait_max = std::chrono::milliseconds(500);

  // On the loop of the client. Returns its number. remove() must come before the end of the client's loop.
  std::uint64_t add(Loop& loop, std::weak_ptr<const rpc::MonitoredCluster> client);
  // When the list of a client was last confirmed. `target` is its name in metrics.
  void confirm(std::uint64_t number, const std::string& target, Time at);
  void remove(std::uint64_t number) noexcept;

  // Awaited on any loop: asks the loops of at most `clients` clients, from the one with this number on.
  Task<rpc::ClusterReports> reports(Loop& here, std::uint64_t number, std::size_t clients, std::size_t from,
                                    std::size_t limit);

  MetricRegistry metrics{series_max};
  // The clock of the loops of the clients: a simulation has another one. Set before the first client is added.
  std::function<Time()> now = [] { return Time(std::chrono::steady_clock::now().time_since_epoch()); };

 private:
  struct Entry {
    Loop* loop;  // Valid while the entry exists.
    std::weak_ptr<const rpc::MonitoredCluster> client;
    std::string target = {};
    std::optional<Time> confirmed = {};  // Empty: it has no list yet, or one that never changes.
  };
  // The age of the oldest list of each name.
  void write_ages(MetricWriter& writer);

  std::mutex lock_;
  std::map<std::uint64_t, Entry> clients_;  // By number.
  std::uint64_t next_ = 1;
  std::shared_ptr<void> ages_ = metrics.collect([this](MetricWriter& writer) { write_ages(writer); });
};

// For clients and pages.
struct ClusterMonitorAccess {
  using State = ClusterMonitor::State;
  static const std::shared_ptr<ClusterMonitor::State>& state(const ClusterMonitor& monitor) noexcept {
    return monitor.state_;
  }
};

}  // namespace hawser
