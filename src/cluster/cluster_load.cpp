#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "cluster/cluster_state.h"
#include "hawser/interceptor.h"
#include "hawser/streaming_call.h"
#include "rpc/client/pool_access.h"
#include "rpc/port/load_report_message.h"

// The load that the servers of a name report.
namespace hawser::detail {
namespace {

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

bool ClusterAttempt::State::reports_come_with_results() const noexcept {
  const auto& weights = balancer.options().load_weights;
  return weights && weights->out_of_band == Duration::zero();
}

bool ClusterAttempt::State::asks_for_load() const noexcept {
  const auto& weights = balancer.options().load_weights;
  return weights && weights->out_of_band != Duration::zero();
}

bool ClusterAttempt::State::lacks_reader(const Node& node) const noexcept {
  return reports_come_with_results() && node.pool != nullptr && !node.reads_reports;
}

void ClusterAttempt::State::begin_load_weights() {
  const auto& weights = balancer.options().load_weights;
  load_pauses.set_interval(weights ? weights->out_of_band : Duration::zero());
  if (!weights) return weigher.stop();
  // A shorter interval counts at once, and repeated demands put nothing off.
  if (!weigher.running() || weights->update < weigh_interval) {
    weigh_interval = weights->update;
    weigher.start(loop, loop.after(weigh_interval));
  }
  for (const auto& backend : balancer.backends()) {
    Node& node = static_cast<Node&>(*backend);
    if (lacks_reader(node) && node.reach != cluster::Reach::connecting) {
      close_later(node);
      if (node.reach == cluster::Reach::ready) connect(node);
    } else if (node.reach == cluster::Reach::ready) {
      begin_questions(node);
    }
  }
}

std::shared_ptr<Interceptor<OutgoingCall>> ClusterAttempt::State::make_load_reader(Node& node) {
  return client_interceptor([of = node.weak_from_this()](OutgoingCall& call, Next next) -> Task<Result<void>> {
    const std::weak_ptr<Node> reported = of;
    Result<void> result = co_await next();
    const auto message = call.reply_metadata().find(LoadReports::metadata_name);
    if (!message) co_return result;
    if (const auto one = reported.lock()) one->state.on_load_report(*one, *message);
    co_return result;
  });
}

void ClusterAttempt::State::on_load_report(Node& node, std::string_view message) noexcept {
  if (const auto report = rpc::read_load_report(message)) balancer.observe_load(node, *report, loop.now());
}

void ClusterAttempt::State::weigh() {
  const auto& weights = balancer.options().load_weights;
  if (!weights) return;
  weigh_interval = weights->update;
  weigher.start(loop, loop.after(weigh_interval));
  balancer.begin_weights(loop.now());
  balance();
}

void ClusterAttempt::State::begin_questions(Node& node) {
  if (asks_for_load() && !node.asked) scope.spawn(ask_for_load(node.shared_from_this()));
}

// Without memory the questions end, and begin again with the next connection or policy.
Task<void> ClusterAttempt::State::ask_for_load(std::shared_ptr<Node> node) {
  node->asked = true;
  node->called = true;  // The first report does not wait for a call.
  try {
    Duration asked_each = Duration::zero();
    bool has_reports = true;
    while (has_reports && asks_for_load() && balancer.listed(*node) && node->reach == cluster::Reach::ready &&
           node->pool != nullptr) {
      const Duration interval = balancer.options().load_weights->out_of_band;
      // Servers are not asked by all clients at once, and not all servers of a name in one turn of the loop.
      Duration pause =
          random_below(std::min(interval, first_question_spread * static_cast<int>(balancer.backends().size())));
      if (std::exchange(asked_each, interval) == interval) {
        // One without calls keeps no connection open.
        if (std::exchange(node->called, false)) has_reports = co_await ask_once(*node, interval);
        pause = interval * 4 / 5 + random_below(interval * 2 / 5);
      }
      static_cast<void>(co_await loop.sleep(pause, load_pauses.token()));
    }
  } catch (const std::bad_alloc&) {
    node->asked = false;
    co_return;
  }
  node->asked = false;
}

Task<bool> ClusterAttempt::State::ask_once(Node& node, Duration interval) {
  const CallOptions limits{.timeout = report_timeout};
  const rpc::LoadReportBytes request{rpc::load_report_request(interval)};
  const std::shared_ptr<Client> client = PoolAccess::try_acquire(*node.pool);
  if (client == nullptr) co_return true;
  auto opened = co_await client->open<&rpc::stream_core_metrics>(limits, request);
  if (!opened) co_return !lacks_reports(opened.error());
  auto reports = opened->reader();
  const auto report = co_await reports.next();
  if (report && *report) {
    on_load_report(node, (*report)->bytes);
    co_return true;
  }
  const auto end = co_await opened->finish();
  co_return end || !lacks_reports(end.error());
}

Duration ClusterAttempt::State::random_below(Duration bound) noexcept {
  return Duration(static_cast<Duration::rep>(random.below(static_cast<std::uint64_t>(bound.count()) + 1)));
}

}  // namespace hawser::detail
