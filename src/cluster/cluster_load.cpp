#include "cluster/cluster_load.h"

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "cluster/cluster_state.h"
#include "hawser/streaming_call.h"
#include "rpc/client/pool_access.h"
#include "rpc/port/load_report_message.h"

namespace hawser::detail {
namespace {

using Node = ClusterAttempt::State::NodeOf;

// The time in which a server has to send the report that it is asked for.
constexpr Duration report_timeout = std::chrono::seconds(5);

// The first questions to the servers of a name are spread over this time for each of them.
constexpr Duration first_question_spread = std::chrono::microseconds(100);

// The server does not have the service.
bool lacks_reports(const Error& error) noexcept {
  constexpr int unimplemented = 12;  // Over gRPC.
  return error.code == ErrorCode::unknown_method ||
         (error.code == ErrorCode::application && error.application_code == unimplemented);
}

}  // namespace

bool ClusterLoad::comes_with_results() const noexcept {
  const auto& weights = cluster_.balancer.options().load_weights;
  return weights && weights->out_of_band == Duration::zero();
}

bool ClusterLoad::asks() const noexcept {
  const auto& weights = cluster_.balancer.options().load_weights;
  return weights && weights->out_of_band != Duration::zero();
}

bool ClusterLoad::lacks_reader(const cluster::Backend& backend) const noexcept {
  const Node& node = static_cast<const Node&>(backend);
  return comes_with_results() && node.pool != nullptr && !node.reads_reports;
}

void ClusterLoad::begin() {
  const auto& weights = cluster_.balancer.options().load_weights;
  pauses_.set_interval(weights ? weights->out_of_band : Duration::zero());
  if (!weights) return weigher_.stop();
  // A shorter interval counts at once, and repeated demands put nothing off.
  if (!weigher_.running() || weights->update < weigh_interval_) {
    weigh_interval_ = weights->update;
    weigher_.start(cluster_.loop, cluster_.loop.after(weigh_interval_));
  }
  for (const auto& backend : cluster_.balancer.backends()) {
    Node& node = static_cast<Node&>(*backend);
    if (lacks_reader(node) && node.reach != cluster::Reach::connecting) {
      cluster_.close_later(node);
      if (node.reach == cluster::Reach::ready) cluster_.connect(node);
    } else if (node.reach == cluster::Reach::ready) {
      begin_questions(node);
    }
  }
}

std::shared_ptr<Interceptor<OutgoingCall>> ClusterLoad::make_reader(cluster::Backend& backend) {
  return client_interceptor(
      [of = static_cast<Node&>(backend).weak_from_this()](OutgoingCall& call, Next next) -> Task<Result<void>> {
        const std::weak_ptr<Node> reported = of;
        Result<void> result = co_await next();
        const auto message = call.reply_metadata().find(LoadReports::metadata_name);
        if (!message) co_return result;
        if (const auto one = reported.lock()) one->state.load.on_report(*one, *message);
        co_return result;
      });
}

void ClusterLoad::on_report(cluster::Backend& node, std::string_view message) noexcept {
  if (const auto report = rpc::read_load_report(message)) {
    cluster_.balancer.observe_load(node, *report, cluster_.loop.now());
  }
}

void ClusterLoad::weigh() {
  const auto& weights = cluster_.balancer.options().load_weights;
  if (!weights) return;
  weigh_interval_ = weights->update;
  weigher_.start(cluster_.loop, cluster_.loop.after(weigh_interval_));
  cluster_.balancer.begin_weights(cluster_.loop.now());
  cluster_.balance();
}

void ClusterLoad::begin_questions(cluster::Backend& backend) {
  Node& node = static_cast<Node&>(backend);
  if (asks() && !node.asked) cluster_.scope.spawn(ask(node.shared_from_this()));
}

// Without memory the questions end, and begin again with the next connection or policy.
Task<void> ClusterLoad::ask(std::shared_ptr<cluster::Backend> backend) {
  Node& node = static_cast<Node&>(*backend);
  cluster::Balancer& balancer = cluster_.balancer;
  node.asked = true;
  node.called = true;  // The first report does not wait for a call.
  try {
    Duration asked_each = Duration::zero();
    bool has_reports = true;
    while (has_reports && asks() && balancer.listed(node) && node.reach == cluster::Reach::ready &&
           node.pool != nullptr) {
      const Duration interval = balancer.options().load_weights->out_of_band;
      // Servers are not asked by all clients at once, and not all servers of a name in one turn of the loop.
      const Duration spread = first_question_spread * static_cast<int>(balancer.backends().size());
      Duration pause = cluster_.random_below(std::min(interval, spread));
      if (std::exchange(asked_each, interval) == interval) {
        // One without calls keeps no connection open.
        if (std::exchange(node.called, false)) has_reports = co_await ask_once(backend, interval);
        pause = interval * 4 / 5 + cluster_.random_below(interval * 2 / 5);
      }
      static_cast<void>(co_await cluster_.loop.sleep(pause, pauses_.token()));
    }
  } catch (const std::bad_alloc&) {
    node.asked = false;
    co_return;
  }
  node.asked = false;
}

Task<bool> ClusterLoad::ask_once(std::shared_ptr<cluster::Backend> backend, Duration interval) {
  const CallOptions limits{.timeout = report_timeout};
  const rpc::LoadReportBytes request{rpc::load_report_request(interval)};
  const std::shared_ptr<Client> client = PoolAccess::try_acquire(*static_cast<Node&>(*backend).pool);
  if (client == nullptr) co_return true;
  auto opened = co_await client->open<&rpc::stream_core_metrics>(limits, request);
  if (!opened) co_return !lacks_reports(opened.error());
  auto reports = opened->reader();
  const auto report = co_await reports.next();
  if (report && *report) {
    on_report(*backend, (*report)->bytes);
    co_return true;
  }
  const auto end = co_await opened->finish();
  co_return end || !lacks_reports(end.error());
}

}  // namespace hawser::detail
