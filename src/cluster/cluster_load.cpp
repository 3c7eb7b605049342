#include <memory>
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
  if (!weights) return weigher.stop();
  if (!weigher.running()) weigher.start(loop, loop.after(weights->update));
  for (const auto& backend : balancer.backends()) {
    Node& node = static_cast<Node&>(*backend);
    if (lacks_reader(node) && node.reach != cluster::Reach::connecting) {
      close_later(node);
      if (node.reach == cluster::Reach::ready) connect(node);
    } else if (asks_for_load() && node.reach == cluster::Reach::ready && !std::exchange(node.asked, true)) {
      scope.spawn(ask_for_load(node.shared_from_this()));
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
  weigher.start(loop, loop.after(weights->update));
  balancer.begin_weights(loop.now());
  balance();
}

Task<void> ClusterAttempt::State::ask_for_load(std::shared_ptr<Node> node) {
  const CallOptions limits{.timeout = report_timeout};
  node->called = true;  // The first report does not wait for a call.
  while (asks_for_load() && balancer.listed(*node) && node->reach == cluster::Reach::ready && node->pool != nullptr) {
    const Duration interval = balancer.options().load_weights->out_of_band;
    const rpc::LoadReportBytes request{rpc::load_report_request(interval)};
    std::shared_ptr<Client> client;
    // One without calls keeps no connection open.
    if (std::exchange(node->called, false)) client = PoolAccess::try_acquire(*node->pool);
    if (client != nullptr) {
      auto opened = co_await client->open<&rpc::stream_core_metrics>(limits, request);
      if (!opened && lacks_reports(opened.error())) break;
      if (opened) {
        auto reports = opened->reader();
        const auto report = co_await reports.next();
        if (report && *report) {
          on_load_report(*node, (*report)->bytes);
        } else if (const auto end = co_await opened->finish(); !end && lacks_reports(end.error())) {
          break;
        }
      }
    }
    client.reset();
    // Servers are not asked by all clients at once.
    co_await loop.sleep(interval * 4 / 5 + Duration(static_cast<Duration::rep>(random.below(
                                               static_cast<std::uint64_t>(interval.count()) * 2 / 5 + 1))));
  }
  node->asked = false;
}

}  // namespace hawser::detail
