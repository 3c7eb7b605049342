#include "lab/model/projection.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/try.h"
#include "hawser/loop.h"
#include "lab/sim_constants.h"
#include "transport/common/pending_step.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/sim/rdma/fabric_poller.h"
#include "transport/sim/rdma/quiet_stream.h"
#include "transport/sim/rdma/sim_device.h"

namespace hawser::lab {
namespace {

// Size from which rpc sends a sequence as a loaned payload instead of copying it into the head.
constexpr std::size_t loaned_bytes_min = 8 * 1024;

// One side of all calls. The client sends a request for each reply, the server a reply for each request.
class ProjectedCaller final : public transport::MessageSink, public SendCompletion {
 public:
  ProjectedCaller(Loop& loop, transport::SimDevice& device, const CallPlan& plan, bool client)
      : loop_(loop),
        device_(device),
        plan_(plan),
        client_(client),
        bytes_(client ? plan.request_bytes : plan.reply_bytes),
        warm_up_(plan.warm_up_calls > 0 ? plan.warm_up_calls : std::max<std::uint64_t>(200, 8 * plan.in_flight)),
        payload_(bytes_) {}

  void start(std::unique_ptr<transport::Connection> connection) {
    connection_ = std::move(connection);
    connection_->start(*this);
  }
  void call() {
    begun_.push_back(loop_.now());
    send();
  }
  // Latencies of the calls after the warm-up, which ended at measured_from().
  const std::vector<double>& latencies_us() const noexcept { return latencies_us_; }
  Time measured_from() const noexcept { return measured_from_; }
  const std::string& problem() const noexcept { return problem_; }
  void end() { connection_.reset(); }

  void on_message(const transport::Message& message) override {
    const std::size_t expected = client_ ? plan_.reply_bytes : plan_.request_bytes;
    if (message.head.size() + message.payload.size() != head_bytes + expected) problem_ = "a message of a wrong length";
    device_.charge(plan_.call_ns / 2 + copy_ns(expected));
    if (!client_) return send();
    // Replies arrive in the order of their requests.
    if (++answered_ > warm_up_) {
      latencies_us_.push_back(static_cast<double>((loop_.now() - begun_.front()).count()) / 1e3);
    }
    begun_.pop_front();
    if (answered_ == warm_up_) measured_from_ = loop_.now();
    if (answered_ == warm_up_ + plan_.calls) return loop_.stop();
    if (answered_ + begun_.size() < warm_up_ + plan_.calls) call();
  }
  transport::ReceiveBuffer select_receive_buffer(Bytes, std::size_t) override { return {}; }
  void on_drained() override {}
  void on_closed(const Error& reason) override {
    problem_ = reason.text;
    loop_.stop();
  }
  void on_send_complete() noexcept override {}

 private:
  static constexpr std::size_t head_bytes = 28;  // Size of a head on the wire.

  double copy_ns(std::size_t bytes) const noexcept { return plan_.copy_byte_ns * static_cast<double>(bytes); }

  void send() {
    device_.charge(plan_.call_ns / 2 + copy_ns(bytes_));
    const bool loaned = bytes_ >= loaned_bytes_min;
    const std::size_t head = head_bytes + (loaned ? 0 : bytes_);
    std::byte* const room = connection_->reserve(head);
    if (room == nullptr) return;
    std::memset(room, 0, head);
    const ConstBuffer piece{payload_.data(), bytes_};
    connection_->commit(head, loaned ? std::span(&piece, 1) : std::span<const ConstBuffer>(), loaned ? this : nullptr);
  }

  Loop& loop_;
  transport::SimDevice& device_;
  const CallPlan& plan_;
  const bool client_;
  const std::size_t bytes_;
  const std::uint64_t warm_up_;
  std::vector<std::byte> payload_;
  std::unique_ptr<transport::Connection> connection_;
  std::deque<Time> begun_;
  std::uint64_t answered_ = 0;
  Time measured_from_{};
  std::vector<double> latencies_us_;
  std::string problem_;
};

struct ProjectedSide {
  std::shared_ptr<transport::rdma::Device> device;
  std::shared_ptr<transport::Transport> transport;
  std::shared_ptr<transport::TransportWorker> worker;
  std::unique_ptr<transport::PendingConnection> pending;
};

Result<ProjectedSide> make_side(Loop& loop, const std::shared_ptr<transport::SimFabric>& fabric, const CallPlan& plan,
                                const std::string& name) {
  ProjectedSide side;
  TRY(auto&& device, fabric->open(name));
  side.device = std::move(device);
  RdmaOptions options = plan.options;
  options.device = name;
  side.transport = transport::make_rdma_transport(options, fabric);
  TRY(auto&& worker, side.transport->attach(loop));
  side.worker = std::move(worker);
  return side;
}

// Returns the plan with values drawn from its uncertainty. Draw 0 is the plan itself.
CallPlan draw_of(const CallPlan& plan, const Uncertainty& uncertainty, unsigned draw) {
  CallPlan drawn = plan;
  if (draw > 0) {
    Random random(plan.seed * (std::uint64_t{1} << 32) + draw);
    drawn.device = varied(plan.device, random.next());
    const auto scale = [&](Origin origin) {
      const double part = static_cast<double>(random.next() >> 11) * 0x1.0p-52 - 1;
      return std::pow(uncertainty_factor(origin), part);
    };
    if (uncertainty.call) drawn.call_ns *= scale(Origin::fitted_together);
    if (uncertainty.call) drawn.copy_byte_ns *= scale(Origin::assumed);
  }
  if (uncertainty.half_trip_us > 0) {
    const double missing_ns = uncertainty.half_trip_us * 1e3 - half_trip_ns(drawn.device);
    drawn.device.link_ns = std::max(0.0, drawn.device.link_ns + missing_ns);
  }
  return drawn;
}

// Negotiates the transport, as client and server do over the byte stream of a real connection.
Result<void> connect(Loop& loop, ProjectedSide& client, ProjectedSide& server, const transport::MessageLimits& limits) {
  const std::vector<std::byte> offer = client.worker->offer();
  TRY(auto&& selected, transport::finish_half(loop, server.worker->select(offer, limits)));
  server.pending = std::move(selected);
  const std::vector<std::byte> parameters = server.pending->parameters();
  TRY(auto&& accepted, transport::finish_half(loop, client.worker->accept(parameters, limits)));
  client.pending = std::move(accepted);
  const std::vector<std::byte> answer = client.pending->parameters();
  return transport::finish_connect(loop, *server.pending, answer);
}

}  // namespace

Result<CallResult> project_calls(const CallPlan& plan) {
  const auto fabric = transport::SimFabric::create(plan.device, plan.seed);
  auto poller = std::make_unique<transport::FabricPoller>(fabric);
  Loop loop(std::move(poller), {.log = no_log()});
  TRY(auto&& client, make_side(loop, fabric, plan, "sim0"));
  TRY(auto&& server, make_side(loop, fabric, plan, "sim1"));
  const std::size_t limit = std::max(plan.request_bytes, plan.reply_bytes) + 4096;
  TRY(connect(loop, client, server, {limit, limit}));
  ProjectedCaller calls(loop, static_cast<transport::SimDevice&>(*client.device), plan, true);
  ProjectedCaller answers(loop, static_cast<transport::SimDevice&>(*server.device), plan, false);
  answers.start(server.pending->open(std::make_unique<transport::QuietStream>()));
  calls.start(client.pending->open(std::make_unique<transport::QuietStream>()));
  loop.post([&] {
    for (unsigned i = 0; i < plan.in_flight; ++i) calls.call();
  });
  loop.run();
  const Time start = calls.measured_from();
  const Time worker = loop.now();
  std::vector<double> latencies = calls.latencies_us();
  const std::string problem = calls.problem().empty() ? answers.problem() : calls.problem();
  calls.end();
  answers.end();
  if (!problem.empty() || latencies.size() != plan.calls) {
    return fail(Error::of_connection(ErrorCode::internal, "the projection did not end: " + problem));
  }
  std::ranges::sort(latencies);
  const double seconds = static_cast<double>((worker - start).count()) / 1e9;
  const auto quantile = [&](double part) {
    return latencies[std::min(latencies.size() - 1,
                              static_cast<std::size_t>(part * static_cast<double>(latencies.size())))];
  };
  return CallResult{static_cast<double>(plan.calls) / seconds, quantile(0.90), quantile(0.99)};
}

Result<CallRanges> project_ranges(const CallPlan& plan, const Uncertainty& uncertainty) {
  CallRanges ranges;
  for (unsigned draw = 0; draw <= uncertainty.draws; ++draw) {
    TRY(const CallResult& result, project_calls(draw_of(plan, uncertainty, draw)));
    ranges.calls_per_s.include(result.calls_per_s);
    ranges.p90_us.include(result.p90_us);
    ranges.p99_us.include(result.p99_us);
  }
  return ranges;
}

}  // namespace hawser::lab
