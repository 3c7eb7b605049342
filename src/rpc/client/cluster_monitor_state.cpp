#include "rpc/client/cluster_monitor_state.h"

#include <algorithm>
#include <new>
#include <utility>

#include "exec/loop_answer.h"

namespace hawser {

ClusterMonitor::ClusterMonitor() : state_(std::make_shared<State>()) {}
const MetricRegistry& ClusterMonitor::metrics() const noexcept { return state_->metrics; }

std::uint64_t ClusterMonitor::State::add(Loop& loop, std::weak_ptr<const rpc::MonitoredCluster> client) {
  const std::lock_guard guard(lock_);
  clients_.emplace(next_, Entry{.loop = &loop, .client = std::move(client)});
  return next_++;
}

void ClusterMonitor::State::confirm(std::uint64_t number, const std::string& target, Time at) {
  const std::lock_guard guard(lock_);
  const auto client = clients_.find(number);
  if (client == clients_.end()) return;
  client->second.target = target;
  client->second.confirmed = at;
}

void ClusterMonitor::State::write_ages(MetricWriter& writer) {
  const Time at = now();
  std::map<std::string, Duration> ages;
  {
    const std::lock_guard guard(lock_);
    for (const auto& [number, client] : clients_) {
      if (!client.confirmed) continue;
      Duration& oldest = ages.try_emplace(client.target, Duration::zero()).first->second;
      oldest = std::max(oldest, at - *client.confirmed);
    }
  }
  const MetricInfo info{"hawser_cluster_list_age_seconds",
                        "Time since the source of the name last said that the list is current.", "seconds"};
  for (const auto& [target, age] : ages) {
    writer.gauge(info, {{"grpc_target", target}}, std::chrono::duration<double>(age).count());
  }
}

void ClusterMonitor::State::remove(std::uint64_t number) noexcept {
  const std::lock_guard guard(lock_);
  clients_.erase(number);
}

Task<rpc::ClusterReports> ClusterMonitor::State::reports(Loop& here, std::uint64_t number, std::size_t clients,
                                                         std::size_t from, std::size_t limit) {
  using Answer = exec::LoopAnswer<rpc::ClusterReport>;
  rpc::ClusterReports result;
  std::vector<std::shared_ptr<Answer>> answers;
  {
    const std::lock_guard guard(lock_);
    result.all = clients_.size();
    auto at = clients_.lower_bound(number);
    for (; at != clients_.end() && answers.size() < clients; ++at) {
      answers.push_back(std::make_shared<Answer>());
      // The loop exists, because the entry does. It owns the client, which may end before this work.
      at->second.loop->post([answer = answers.back(), client = at->second.client, id = at->first, from, limit] {
        try {
          if (const auto one = client.lock()) answer->value = one->report(from, limit);
        } catch (const std::bad_alloc&) {
          answer->value = {};  // As if it had ended.
        }
        answer->value.number = id;
        answer->there.store(true, std::memory_order_release);
      });
    }
    if (at != clients_.end()) result.next = at->first;
  }
  const Time end = here.after(wait_max);
  for (const auto& answer : answers) {
    const bool there = co_await exec::arrives(here, answer, end - here.now());
    if (!there) {
      ++result.silent;
    } else if (!answer->value.name.empty()) {  // Else the client has ended.
      result.found.push_back(std::move(answer->value));
    }
  }
  co_return result;
}

}  // namespace hawser
