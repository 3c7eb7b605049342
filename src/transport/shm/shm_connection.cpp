#include "transport/shm/shm_connection.h"

#include <new>
#include <thread>
#include <utility>

#include "base/error_without_throwing.h"

namespace hawser::transport::shm {

ShmConnection::ShmConnection(Loop& loop, Link link, std::unique_ptr<Stream> stream)
    : loop_(loop),
      link_(std::move(link)),
      mark_(link_.memory->mark()),
      sleeper_(link_.memory->control().sides[link_.side]),
      waker_(link_.memory->control().sides[1 - link_.side], link_.bell),
      sender_(*link_.memory, link_.side, link_.options, waker_),
      receiver_(loop, link_.memory, 1 - link_.side,
                {.message = wire::MessageLimit::without_prefix(link_.limits.receive_bytes_max),
                 .receive_buffer_bytes_min = link_.options.eager_bytes + 1,
                 .copies = link_.options.copy_received},
                waker_, {.peer = link_.peer, .helpers = link_.helpers, .go_on = [this] { set_hot(true); }}),
      liveness_(std::move(stream), [this](Error reason) {
        peer_gone_ = std::move(reason);
        if (gate_.sink != nullptr) set_hot(true);
      }) {}

ShmConnection::~ShmConnection() {
  abort();
  loop_.remove_tick_end(*this);
  link_.helpers->dispose_socket(link_.bell.take());
}

Capabilities ShmConnection::capabilities() const noexcept {
  return {.head_bytes_max = link_.limits.send_bytes_max,
          .message_bytes_max = link_.limits.send_bytes_max,
          .receive_buffer_bytes_min = link_.options.eager_bytes + 1,
          .copies_only = true,
          .gathers = false,
          .charges = true,
          .remote_memory = false};
}

// The peer may write any numbers into the shared memory.
std::string ShmConnection::link_details() const {
  if (gate_.ended || !mark_.is_ours()) return {};
  const std::size_t ring = link_.memory->sizes().ring;
  const auto used = [&](std::size_t side) {
    const RingEnds& ends = link_.memory->control().rings[side];
    const std::uint64_t bytes = ends.tail.load(std::memory_order_relaxed) - ends.head.load(std::memory_order_relaxed);
    return std::to_string(std::min<std::uint64_t>(bytes, ring));
  };
  return used(link_.side) + " of " + std::to_string(ring) + " bytes of the ring to the peer used, " +
         used(1 - link_.side) + " of that from it; " +
         (link_.peer != nullptr ? "reads the peer's memory directly" : "large payloads are copied by the sender");
}

void ShmConnection::start(MessageSink& sink) {
  gate_.sink = &sink;
  if (gate_.ended) return;
  receiver_.start(sink);
  loop_.poller().watch(link_.bell.fd(), *this);
  bell_watched_ = true;
  set_hot(true);
}

void ShmConnection::commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) {
  sender_.commit(head_bytes, payload, owner);
  if (gate_.ended) [[unlikely]]  // The owner ended the connection.
    return;
  watermark_.on_commit(sender_.backlog());
  if (sender_.waits() && gate_.sink != nullptr) [[unlikely]]
    set_hot(true);
  loop_.at_tick_end(*this);
}

void ShmConnection::flush() {
  if (gate_.ended || !mark_.is_ours()) return;
  sender_.publish_rest();
  if (closing_) sender_.finish();
  drained();
}

void ShmConnection::drained() {
  if (!gate_.ended && watermark_.on_sent(sender_.backlog()) && gate_.sink != nullptr) gate_.sink->on_drained();
}

void ShmConnection::close() {
  if (gate_.ended || std::exchange(closing_, true)) return;
  flush();
  // The end record waits for room like any message.
  if (gate_.sink != nullptr) set_hot(true);
}

void ShmConnection::resume() {
  gate_.paused = false;
  if (gate_.sink != nullptr) set_hot(true);
}

// ---- Polling ----

bool ShmConnection::poll() {
  if (!mark_.is_ours()) return false;
  if (std::exchange(armed_, false)) sleeper_.disarm();
  if (poll_once()) {
    idle_polls_ = 0;
    return true;
  }
  // The thread that reads the peer's memory may share this processor. A loop that spins without yielding would halve
  // its speed.
  if (receiver_.busy()) std::this_thread::yield();
  const unsigned idle_max = loop_.options().wait == Wait::event ? idle_polls_event_max : idle_polls_max;
  if (!gate_.ended && ++idle_polls_ > idle_max && arm()) set_hot(false);
  return false;
}

// The peer's messages may be as large as the limits allow.
bool ShmConnection::poll_once() {
  if (gate_.ended || gate_.sink == nullptr) return false;
  try {
    return serve_peer();
  } catch (const std::bad_alloc&) {
    fail(Error::of_connection(ErrorCode::overloaded, "out of memory"));
    return true;
  }
}

bool ShmConnection::serve_peer() {
  bool worked = false;
  if (sender_.waits() && sender_.advance()) {
    worked = true;
    if (!gate_.ended) loop_.at_tick_end(*this);
  }
  const Result<bool> taken = receiver_.take(gate_);
  if (gate_.ended) return true;
  if (!taken) {
    fail(taken.error());
    return true;
  }
  if (sender_.broken()) {
    fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                              "the peer violated the shared memory protocol: it has read more than was sent"));
    return true;
  }
  // The peer's last messages are delivered before its end. A paused connection keeps them, unless it could wait forever
  // for its own messages to be sent.
  if (peer_gone_ && !receiver_.busy() && (!receiver_.ready() || (gate_.paused && sender_.waits()))) {
    fail(*peer_gone_);
    return true;
  }
  return *taken || worked;
}

bool ShmConnection::has_work() noexcept {
  return (gate_.open() && receiver_.ready()) || sender_.can_advance() ||
         (peer_gone_ && !gate_.paused && !receiver_.busy());
}

bool ShmConnection::arm() {
  if (gate_.ended || !mark_.is_ours()) return true;
  const std::uint32_t wants = (gate_.open() ? wants_messages : 0) | (sender_.waits() ? wants_room : 0);
  armed_ = sleeper_.arm(wants, [this] { return has_work(); });
  return armed_;
}

void ShmConnection::on_ready(exec::Readiness readiness) {
  if (!(readiness.readable || readiness.hangup) || gate_.ended || !mark_.is_ours()) return;
  if (!link_.bell.silence()) {
    // It would always be ready.
    unwatch_bell();
    if (!peer_gone_) {
      peer_gone_ = error_without_throwing(Initiator::peer, ErrorScope::connection, ErrorCode::unavailable,
                                          "the peer closed the connection");
    }
  }
  set_hot(true);
  poll();
}

void ShmConnection::unwatch_bell() noexcept {
  if (std::exchange(bell_watched_, false)) loop_.poller().unwatch(link_.bell.fd(), *this);
}

void ShmConnection::set_hot(bool hot) {
  idle_polls_ = 0;
  if (hot_ == hot || (hot && gate_.ended)) return;
  hot_ = hot;
  if (hot) {
    loop_.add_source(*this);
  } else {
    loop_.remove_source(*this);
  }
}

// ---- End ----

void ShmConnection::fail(const Error& reason) {
  const Error copy = reason;
  abort();
  if (gate_.sink != nullptr) gate_.sink->on_closed(copy);
}

void ShmConnection::abort() noexcept {
  if (std::exchange(gate_.ended, true)) return;
  set_hot(false);
  receiver_.stop();
  // A child shares the poller's registrations and the stream with its parent, which continues to use both.
  if (mark_.is_ours()) {
    unwatch_bell();
    liveness_.close();
  }
  sender_.clear();
}

}  // namespace hawser::transport::shm
