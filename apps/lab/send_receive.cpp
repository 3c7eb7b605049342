#include "lab/send_receive.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "lab/memory.h"
#include "lab/ping_pong.h"
#include "lab/stream_receiver.h"
#include "lab/stream_sender.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

namespace {

// Size of a write of credits.
constexpr unsigned credit_inline_bytes = 16;

unsigned receives_of(const StreamPlan& plan) {
  constexpr unsigned receives_min = 64;
  constexpr unsigned receives_max = 512;
  return plan.recv_queue_depth > 0 ? plan.recv_queue_depth : std::clamp(2 * plan.window, receives_min, receives_max);
}

// Objects of a run. Members are declared after those that they use, so that they are destroyed before them.
struct Setup {
  const Testbed& testbed;
  const StreamPlan& plan;
  const unsigned receives = receives_of(plan);
  const bool shared = plan.receives != Receives::own;

  // A receiving thread with its completion queue.
  struct Receiver {
    std::unique_ptr<rdma::CompletionQueue> completions;
    std::unique_ptr<HandoverRing> ring;
    std::vector<IncomingStream> incoming;
    std::unique_ptr<StreamReceiver> role;
  };
  struct Connection {
    std::optional<LabMemory> payload;
    std::optional<LabMemory> arrivals;
    std::unique_ptr<ReceivePlaces> places;
    std::unique_ptr<rdma::CompletionQueue> send_completions;
    std::unique_ptr<rdma::QueuePair> sender;
    std::unique_ptr<rdma::QueuePair> receiver;
    std::unique_ptr<StreamSender> role;
  };
  std::optional<LabMemory> credit_counts;
  std::optional<LabMemory> shared_arrivals;
  std::unique_ptr<ReceivePlaces> shared_places;
  std::unique_ptr<rdma::SharedReceiveQueue> shared_queue;
  SharedPlaces shared_receives{};
  std::vector<Receiver> receivers{};
  std::vector<Connection> connections{};
  std::unique_ptr<Reposter> reposter{};

  Result<void> make();
  Result<void> make_shared_receives();
  Result<void> make_receiver(unsigned connections_each);
  Result<void> make_connection(unsigned index);
  Result<void> make_roles();
  Result<StreamResult> run();
  Result<void> verify() const;

  std::uint64_t* granted(unsigned connection) {
    if (!plan.credits) return nullptr;
    // Each counter has its own cache line, so that senders do not disturb each other.
    return reinterpret_cast<std::uint64_t*>(credit_counts->memory.data() + connection * cache_line_bytes);
  }
};

template <class T>
Result<void> keep(T& where, Result<typename T::value_type> made) {
  TRY(made);
  where.emplace(std::move(*made));
  return {};
}
template <class T>
Result<void> keep(std::unique_ptr<T>& where, Result<std::unique_ptr<T>> made) {
  TRY(made);
  where = std::move(*made);
  return {};
}

Result<void> Setup::make_shared_receives() {
  const unsigned count = receives * plan.connections;
  const MemoryOptions memory{.bytes = count * stride_of(plan.size_bytes)};
  TRY(keep(shared_arrivals, LabMemory::make(testbed.receiver(), memory, {})));
  poison(shared_arrivals->memory.bytes());
  shared_places = std::make_unique<ReceivePlaces>(*shared_arrivals, plan.size_bytes, count);
  TRY(keep(shared_queue, testbed.receiver().create_shared_receive_queue(count)));
  shared_receives.queue = shared_queue.get();
  shared_receives.places = shared_places.get();
  std::vector<rdma::ReceiveRequest> all;
  for (std::uint32_t place = 0; place < count; ++place) all.push_back(shared_places->request(place));
  return shared_queue->post_receive(all);
}

Result<void> Setup::make_receiver(unsigned connections_each) {
  Receiver& receiver = receivers.emplace_back();
  // The queue holds completions of messages that have not been polled yet and of outstanding writes of credits.
  const unsigned count =
      (shared ? receives * plan.connections : receives * connections_each) + credit_writes_max * connections_each;
  if (plan.receives == Receives::shared_central) receiver.ring = std::make_unique<HandoverRing>(count);
  return keep(receiver.completions, testbed.receiver().create_completion_queue(count));
}

Result<void> Setup::make_connection(unsigned index) {
  Connection& connection = connections.emplace_back();
  Receiver& receiver = receivers[plan.one_receiver ? 0 : index];
  const std::size_t stride = stride_of(plan.size_bytes);
  TRY(keep(connection.payload, LabMemory::make(testbed.sender(), {.bytes = plan.window * stride}, {})));
  for (unsigned place = 0; place < plan.window; ++place) {
    fill_pattern(connection.payload->memory.bytes().subspan(place * stride, plan.size_bytes),
                 pattern_of(index, place, plan.window));
  }
  if (!shared) {
    const MemoryOptions memory{.bytes = receives * stride};
    TRY(keep(connection.arrivals, LabMemory::make(testbed.receiver(), memory, {})));
    poison(connection.arrivals->memory.bytes());
    connection.places = std::make_unique<ReceivePlaces>(*connection.arrivals, plan.size_bytes, receives);
  }
  TRY(keep(connection.send_completions, testbed.sender().create_completion_queue(plan.window + 1)));
  const rdma::QueuePairOptions sender{.completions = connection.send_completions.get(),
                                      .send_requests = plan.window,
                                      .receive_requests = 1,
                                      .inline_bytes = plan.use_inline ? static_cast<unsigned>(plan.size_bytes) : 0};
  const rdma::QueuePairOptions receiving{.completions = receiver.completions.get(),
                                         .shared_receives = shared_queue.get(),
                                         .send_requests = credit_writes_max,
                                         .receive_requests = shared ? 0 : receives,
                                         .inline_bytes = credit_inline_bytes};
  TRY(keep(connection.sender, testbed.sender().create_queue_pair(sender, testbed.port())));
  TRY(keep(connection.receiver, testbed.receiver().create_queue_pair(receiving, testbed.port())));
  receiver.incoming.push_back({.connection = index,
                               .queue_pair = connection.receiver.get(),
                               .places = connection.places.get(),
                               .sender_places = plan.window,
                               .count = plan.count,
                               .receives = receives,
                               .credit_address = plan.credits ? credit_counts->address(index * cache_line_bytes) : 0,
                               .credit_key = plan.credits ? credit_counts->region->remote_key() : 0});
  return {};
}

Result<void> Setup::make_roles() {
  // At most a quarter of the receives, so that no credit waits for receives that wait for their batch to fill.
  const unsigned repost_batch = std::clamp(plan.repost_batch, 1u, std::max(1u, receives / 4));
  std::vector<HandoverRing*> rings;
  for (Receiver& receiver : receivers) {
    const ReceiverPlan receiver_plan{
        .poll_burst = plan.poll_burst, .repost_batch = repost_batch, .verify_each = plan.verify_each};
    receiver.role = std::make_unique<StreamReceiver>(receiver_plan, *receiver.completions, std::move(receiver.incoming),
                                                     shared ? &shared_receives : nullptr, receiver.ring.get());
    TRY(receiver.role->post_first());
    if (receiver.ring) rings.push_back(receiver.ring.get());
  }
  for (unsigned index = 0; index < plan.connections; ++index) {
    Connection& connection = connections[index];
    TRY(testbed.connect(*connection.sender, *connection.receiver, plan.link));
    if (std::uint64_t* const count = granted(index)) *count = receives;
    const bool use_inline = plan.use_inline && connection.sender->inline_bytes() >= plan.size_bytes;
    connection.role = std::make_unique<StreamSender>(SenderPlan{.connection = index,
                                                                .size_bytes = plan.size_bytes,
                                                                .count = plan.count,
                                                                .window = plan.window,
                                                                .batch = plan.batch,
                                                                .signal_each = plan.signal_each,
                                                                .use_inline = use_inline},
                                                     *connection.sender, *connection.send_completions,
                                                     *connection.payload, granted(index));
  }
  if (!rings.empty()) {
    reposter = std::make_unique<Reposter>(shared_receives, rings, repost_batch, plan.count * plan.connections);
  }
  return {};
}

Result<void> Setup::make() {
  if (plan.window == 0 || plan.batch == 0 || plan.batch > plan.window || plan.count == 0 || plan.size_bytes == 0 ||
      plan.connections == 0) {
    return fail(ErrorCode::invalid_argument,
                "sizes, counts and windows are at least 1, and batches at most the window");
  }
  if (shared) {
    TRY(make_shared_receives());
  }
  if (plan.credits) {
    const MemoryOptions memory{.bytes = plan.connections * cache_line_bytes};
    TRY(keep(credit_counts, LabMemory::make(testbed.sender(), memory, {.remote_write = true})));
  }
  const unsigned threads = plan.one_receiver ? 1 : plan.connections;
  for (unsigned i = 0; i < threads; ++i) {
    TRY(make_receiver(plan.connections / threads));
  }
  connections.reserve(plan.connections);  // Pointers to the elements must stay valid.
  for (unsigned index = 0; index < plan.connections; ++index) {
    TRY(make_connection(index));
  }
  return make_roles();
}

Result<StreamResult> Setup::run() {
  // Senders and receivers alternate, so that two processors share them evenly.
  std::vector<std::vector<Role*>> threads;
  for (unsigned i = 0; i < plan.connections; ++i) {
    threads.push_back({connections[i].role.get()});
    if (i < receivers.size()) threads.push_back({receivers[i].role.get()});
  }
  if (reposter) threads.push_back({reposter.get()});
  const std::uint64_t not_ready_before = testbed.receiver_not_ready();
  TRY(testbed.executor().run(threads));
  double start_ns = connections.front().role->start_ns();
  double end_ns = 0;
  for (const Connection& connection : connections) {
    start_ns = std::min(start_ns, connection.role->start_ns());
    end_ns = std::max(end_ns, connection.role->end_ns());
  }
  TRY(verify());
  return StreamResult{.elapsed_ns = end_ns - start_ns,
                      .messages = plan.count * plan.connections,
                      .receiver_not_ready = testbed.receiver_not_ready() - not_ready_before};
}

Result<void> Setup::verify() const {
  if (shared_places) return shared_places->verify();
  for (const Connection& connection : connections) {
    TRY(connection.places->verify());
  }
  return {};
}

}  // namespace

Result<StreamResult> run_stream(const Testbed& testbed, const StreamPlan& plan) {
  Setup setup{.testbed = testbed, .plan = plan};
  TRY(setup.make());
  return setup.run();
}

Result<std::vector<double>> run_ping_pong(const Testbed& testbed, const PingPongPlan& plan) {
  struct Side {
    std::optional<LabMemory> memory;
    std::unique_ptr<rdma::CompletionQueue> completions;
    std::unique_ptr<rdma::QueuePair> queue_pair;
    std::unique_ptr<PingPong> role;
  };
  std::array<Side, 2> sides;
  for (const bool begins : {true, false}) {
    Side& side = sides[begins ? 0 : 1];
    rdma::Device& device = begins ? testbed.sender() : testbed.receiver();
    const MemoryOptions memory{.bytes = 2 * stride_of(plan.size_bytes)};
    Result<void> made = keep(side.memory, LabMemory::make(device, memory, {}));
    if (made) made = keep(side.completions, device.create_completion_queue(16));
    TRY(made);
    const rdma::QueuePairOptions options{.completions = side.completions.get(),
                                         .send_requests = 4,
                                         .receive_requests = 4,
                                         .inline_bytes = plan.use_inline ? static_cast<unsigned>(plan.size_bytes) : 0};
    made = keep(side.queue_pair, device.create_queue_pair(options, testbed.port()));
    TRY(made);
    const bool use_inline = plan.use_inline && side.queue_pair->inline_bytes() >= plan.size_bytes;
    side.role = std::make_unique<PingPong>(
        PingPong::Plan{.size_bytes = plan.size_bytes, .count = plan.count, .begins = begins, .use_inline = use_inline},
        *side.queue_pair, *side.completions, *side.memory);
    if (made = side.role->post_first(); !made) return fail(std::move(made.error()));
  }
  TRY(testbed.connect(*sides[0].queue_pair, *sides[1].queue_pair, {}));
  const std::vector<std::vector<Role*>> threads = {{sides[0].role.get()}, {sides[1].role.get()}};
  TRY(testbed.executor().run(threads));
  return sides[0].role->half_trips_ns();
}

}  // namespace hawser::lab
