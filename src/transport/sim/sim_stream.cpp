#include "transport/sim/sim_stream.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace hawser::transport {
namespace {

// Limit of receives in one turn, so that others get theirs.
constexpr unsigned receives_per_turn = 8;
// Number of bytes that arrive together if the bandwidth is limited.
constexpr std::size_t packet_bytes = 4096;

}  // namespace

// ---- SimPipe ----

std::size_t SimPipe::arrived(Time now) const noexcept {
  if (silent || chunks.empty() || chunks.front().arrival > now) return 0;
  return chunks.front().bytes.size() - chunks.front().used;
}

void SimPipe::read(MutableBytes into) noexcept {
  Chunk& front = chunks.front();
  std::memcpy(into.data(), front.bytes.data() + front.used, into.size());
  front.used += into.size();
  held -= into.size();
  if (front.used == front.bytes.size()) chunks.pop_front();
}

void SimPipe::push(Bytes bytes, Time arrival, std::uint64_t bytes_per_second) {
  const std::uint64_t begin = sent;
  sent += bytes.size();
  if (begin >= cut) return;
  if (sent > cut) bytes = bytes.first(static_cast<std::size_t>(cut - begin));
  held += bytes.size();
  const std::size_t chunk_bytes = bytes_per_second == 0 ? bytes.size() : packet_bytes;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), chunk_bytes))) {
    const Bytes one = bytes.first(std::min(bytes.size(), chunk_bytes));
    if (bytes_per_second != 0) {
      arrival += Duration(static_cast<Duration::rep>(one.size() * 1'000'000'000 / bytes_per_second));
    }
    chunks.push_back({std::vector<std::byte>(one.begin(), one.end()), 0, arrival});
  }
  last_arrival = arrival;
}

// ---- SimLink ----

SimLink::SimLink(Loop& on, std::shared_ptr<SimState> of, std::string client, std::string server, Kind of_kind)
    : loop(on),
      state(std::move(of)),
      id(++state->connections),
      addresses{std::move(client), std::move(server)},
      kind(of_kind),
      timer_(*this) {
  const SimOptions& options = state->options;
  for (SimPipe& pipe : pipes) {
    pipe.capacity =
        options.buffer_bytes_min + state->random.below(options.buffer_bytes_max - options.buffer_bytes_min + 1);
    assert(pipe.capacity >= 512);
    pipe.last_arrival = loop.now();
  }
  draw_fault();
  separated_ = {separated_from(0), separated_from(1)};
  state->links.push_back(this);
}

SimLink::~SimLink() { std::erase(state->links, this); }

void SimLink::draw_fault() {
  Random& random = state->random;
  const SimOptions& options = state->options;
  if (random.chance(kind == Kind::transport ? options.transport_reset : options.reset)) {
    fault_ = Fault::reset;
  } else if (random.chance(kind == Kind::transport ? options.transport_vanish : options.vanish)) {
    fault_ = Fault::vanish;
  } else {
    return;
  }
  fault_side_ = static_cast<unsigned>(random.below(2));
  if (random.chance(0.6)) {
    fault_at_ = random.below(options.fault_bytes_max + 1);
    if (fault_ == Fault::reset) pipes[fault_side_].cut = fault_at_;
  } else {
    timer_.start(loop, loop.now() + state->between(Duration::zero(), options.fault_after_max));
  }
}

void SimLink::check_fault(unsigned side) {
  if (side == fault_side_ && pipes[side].sent >= fault_at_) trip();
}

void SimLink::trip() {
  timer_.stop();
  fault_at_ = ~std::uint64_t{0};
  const Fault fault = std::exchange(fault_, Fault::none);
  if (fault == Fault::reset) reset();
  if (fault == Fault::vanish) vanish();
}

void SimLink::reset() {
  state->record(loop.now(), id, SimEvent::reset, 0);
  was_reset = true;
  // Bytes that arrive before an end learns of the reset are still delivered. The rest is lost.
  for (SimStream* end : ends) {
    if (end != nullptr) end->break_at(loop.now() + 2 * state->delay());
  }
}

void SimLink::vanish() {
  const bool both = state->random.chance(0.7);
  const unsigned one = static_cast<unsigned>(state->random.below(2));
  state->record(loop.now(), id, SimEvent::vanish, both ? 2 : one);
  fall_silent(both || one == 0, both || one == 1);
}

void SimLink::fall_silent(bool client, bool server) {
  pipes[0].silent |= client;
  pipes[1].silent |= server;
}

bool SimLink::separated_from(unsigned side) const {
  return state->separated(SimNetwork::host_of(addresses[side]), SimNetwork::host_of(addresses[1 - side]));
}

void SimLink::update_partition() {
  for (unsigned side = 0; side < 2; ++side) {
    const bool now = separated_from(side);
    if (std::exchange(separated_[side], now) == now || now) continue;
    if (SimStream* const receiver = ends[1 - side]) receiver->partition_ended();
    if (SimStream* const sender = ends[side]) sender->sent_arrives();
  }
}

// ---- SimStream ----

SimStream::SimStream(std::shared_ptr<SimLink> link, unsigned side) : link_(std::move(link)), side_(side) {
  link_->ends[side_] = this;
  ++state().streams;
}

SimStream::~SimStream() {
  state().record(now(), link_->id, SimEvent::destroy, side_);
  --state().streams;
  link_->ends[side_] = nullptr;
  SimStream* const left = other();
  if (left == nullptr || broken_at_) return;
  if (incoming().held != 0 && !incoming().silent && !outgoing().silent) {
    // Like TCP, bytes that reach no receiver are answered by a reset.
    left->lose(state().delay());
    return;
  }
  if (!std::exchange(outgoing().finished, true)) outgoing().end_arrival = now() + state().delay();
  left->wake_reader();
  left->room_freed();
}

void SimStream::start(Loop&, StreamSink& sink) {
  sink_ = &sink;
  wake_reader();
}

std::size_t SimStream::send(std::span<const ConstBuffer> pieces) {
  assert(!outgoing().finished);
  std::size_t offered = 0;
  for (const ConstBuffer& piece : pieces) offered += piece.size;
  SimState& shared = state();
  SimPipe& pipe = outgoing();
  // An end that knows of the break accepts no bytes. An end that does not know accepts bytes, which are lost.
  const bool lost = broken_at_ || (other() == nullptr && !pipe.silent);
  const std::size_t room = broken() || ended_ ? 0 : lost ? offered : std::min(offered, pipe.room());
  std::size_t taken = room;
  if (taken != 0 && shared.random.chance(shared.options.short_send)) {
    taken = static_cast<std::size_t>(shared.random.below(taken + 1));
  }
  std::vector<std::byte> bytes;
  bytes.reserve(taken);
  for (const ConstBuffer& piece : pieces) {
    const std::size_t part = std::min(piece.size, taken - bytes.size());
    bytes.insert(bytes.end(), piece.data, piece.data + part);
  }
  shared.record(now(), link_->id, SimEvent::send, side_, bytes);
  if (lost) {
    if (!broken_at_ && taken != 0) lose(2 * shared.delay());
  } else if (taken != 0) {
    pipe.push(bytes, std::max(now() + shared.delay(), pipe.last_arrival), shared.options.bytes_per_second);
    if (other() != nullptr) other()->wake_reader();
    link_->check_fault(side_);
  }
  blocked_ = taken < offered;
  // A send that was short by chance may continue soon. A full pipe waits for its reader.
  if (blocked_ && taken < room) sending_.start(link_->loop, now() + shared.delay());
  return taken;
}

void SimStream::resume() {
  if (!std::exchange(paused_, false)) return;
  if (broken()) breaking_.start(link_->loop, now());
  wake_reader();
}

void SimStream::finish() noexcept {
  if (std::exchange(outgoing().finished, true)) return;
  state().record(now(), link_->id, SimEvent::finish, side_);
  outgoing().end_arrival = now() + state().delay();
  if (other() != nullptr) other()->wake_reader();
}

// The reader is called when the next byte, or the end, has arrived, or soon if it has arrived already.
void SimStream::wake_reader() {
  if (sink_ == nullptr || paused_ || ended_ || half_closed_ || reading_.running() || link_->separated(1 - side_))
    return;
  const SimPipe& pipe = incoming();
  if (pipe.silent) return;
  if (!pipe.chunks.empty()) {
    reading_.start(link_->loop, pipe.chunks.front().arrival);
  } else if (pipe.finished) {
    reading_.start(link_->loop, pipe.end_arrival);
  }
}

void SimStream::receive_later() {
  SimState& shared = state();
  if (paused_ || ended_ || incoming().arrived(now()) == 0 || !shared.random.chance(shared.options.slow_receive)) {
    return wake_reader();
  }
  reading_.start(link_->loop, now() + shared.between(Duration::zero(), shared.options.slow_receive_max));
}

void SimStream::receive() {
  SimState& shared = state();
  SimPipe& pipe = incoming();
  if (pipe.silent || link_->separated(1 - side_)) return;
  for (unsigned turn = 0; turn < receives_per_turn && !paused_ && !ended_; ++turn) {
    const std::size_t arrived = pipe.arrived(now());
    if (arrived == 0) break;
    const MutableBytes space = sink_->receive_space();
    assert(!space.empty());
    std::size_t size = std::min(arrived, space.size());
    const bool part = shared.random.chance(shared.options.short_receive);
    if (part)
      size = 1 + static_cast<std::size_t>(shared.random.below(std::min(size, shared.options.short_receive_bytes_max)));
    pipe.read(space.first(size));
    shared.record(now(), link_->id, SimEvent::receive, side_, space.first(size));
    if (other() != nullptr) other()->room_freed();
    sink_->received(size);
    if (part) break;
  }
  if (!paused_ && !ended_ && pipe.chunks.empty() && pipe.finished && pipe.end_arrival <= now()) {
    if (half_closed_) return;
    half_closed_ = !broken() && sink_->continues_after_end();
    return half_closed_ ? void() : end("the peer closed the connection");
  }
  receive_later();
}

void SimStream::room_freed() {
  if (!blocked_ || sending_.running() || outgoing().silent) return;
  sending_.start(link_->loop, now() + state().delay());
}

void SimStream::notify_sendable() {
  if (ended_ || broken() || !std::exchange(blocked_, false)) return;
  state().record(now(), link_->id, SimEvent::sendable, side_);
  sink_->sendable(0);
}

void SimStream::partition_ended() {
  SimPipe& pipe = incoming();
  const Time arrival = now() + state().delay();
  for (SimPipe::Chunk& chunk : pipe.chunks) chunk.arrival = std::max(chunk.arrival, arrival);
  pipe.last_arrival = std::max(pipe.last_arrival, arrival);
  pipe.end_arrival = std::max(pipe.end_arrival, arrival);
  if (std::exchange(break_waits_, false)) break_at(arrival);
  wake_reader();
}

void SimStream::sent_arrives() {
  if (std::exchange(lost_waits_, false)) lose(2 * state().delay());
}

void SimStream::lose(Duration answer) {
  if (link_->separated(side_)) {
    lost_waits_ = true;
    return;
  }
  break_at(now() + answer);
}

void SimStream::break_at(Time when) {
  if (broken_at_) return;
  if (link_->separated(1 - side_)) {
    break_waits_ = true;
    return;
  }
  broken_at_ = when;
  breaking_.start(link_->loop, when);
}

void SimStream::notify_broken() {
  // As with TCP, a paused receiver does not notice.
  if (paused_ || ended_ || sink_ == nullptr) return;
  end("the connection was reset");
}

void SimStream::end(const char* text) {
  ended_ = true;
  reading_.stop();
  sending_.stop();
  breaking_.stop();
  state().record(now(), link_->id, SimEvent::end, side_);
  sink_->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, text));
}

}  // namespace hawser::transport
