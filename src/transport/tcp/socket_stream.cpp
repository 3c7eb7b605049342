#include "hawser/socket_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <coroutine>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "base/descriptor.h"
#include "base/what_of.h"
#include "hawser/detail/loop_access.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/transport/protect.h"
#include "transport/tcp/application_socket.h"

namespace hawser {
namespace {

// Receives of one task without a turn of the loop.
constexpr unsigned socket_receives_per_turn = 4;

bool is_connected_stream(int descriptor) noexcept {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer{};
  size = sizeof(peer);
  return ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

// `co_await SocketTurn{loop}` lets the loop do its other work first.
struct SocketTurn {
  explicit SocketTurn(Loop& on) noexcept : loop(on) {}
  SocketTurn(const SocketTurn&) = delete;
  SocketTurn& operator=(const SocketTurn&) = delete;
  ~SocketTurn() {
    if (waiting) loop.forget(waiting);
  }
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> coroutine) {
    loop.resume_soon(coroutine);
    waiting = coroutine;
  }
  void await_resume() noexcept { waiting = nullptr; }

  Loop& loop;
  std::coroutine_handle<> waiting;
};

}  // namespace

struct SocketStream::State final : transport::StreamSink, transport::ReadinessObserver, detail::LoopUser {
  enum class Receiving : std::uint8_t {
    open,
    ended,   // The peer's end, or stop_receiving().
    failed,  // The connection is broken: `error`.
  };

  State(Loop& on, Descriptor descriptor) : loop(on) {
    auto own = std::make_unique<transport::ApplicationSocket>(loop, std::move(descriptor), *this, *this);
    peer = own->peer();
    socket = own.get();
    stream = std::move(own);
    detail::LoopAccess::add_user(loop, *this);
  }

  // The functions of the SocketStream, which may be moved or destroyed while they wait.
  static Task<Result<std::size_t>> receive(std::shared_ptr<State> kept, MutableBytes into);
  static Task<Result<void>> send(std::shared_ptr<State> kept, Bytes bytes);
  static Task<void> wait(std::shared_ptr<State> kept, SocketEvent event);
  static Task<Result<void>> finish(std::shared_ptr<State> kept);
  std::size_t send_now(std::span<const ConstBuffer> pieces);

  MutableBytes receive_space() override { return waiting; }
  void received(std::size_t bytes) override {
    if (bytes == 0) return;
    got = bytes;
    wake_receiver();
  }
  void sendable(std::size_t bytes) override {
    late += bytes;
    writable.set();
  }
  void broken(const Error& reason) override { note_broken(reason); }
  bool continues_after_end() override {
    end_receiving(Receiving::ended);
    peer_end.set();
    return true;
  }
  void ended(const Error& reason) override {
    note_broken(reason);
    end_receiving(Receiving::failed);
  }
  void on_hangup(bool is_broken) noexcept override {
    peer_end.set();
    if (is_broken) note_broken(Initiator::peer, ErrorCode::unavailable, "the connection broke");
  }
  void on_finished() noexcept override { finished.set(); }
  void on_loop_end() noexcept override { close(ErrorCode::cancelled, "the loop of the SocketStream has ended"); }

  // Ends what waits, and closes the socket.
  void close(ErrorCode code, std::string_view reason) noexcept {
    if (!std::exchange(uses_loop, false)) return;
    detail::LoopAccess::remove_user(loop, *this);
    note_broken(Initiator::local, code, reason);
    end_receiving(Receiving::failed);
    socket = nullptr;
    stream.reset();
  }

  void wake_receiver() noexcept {
    waiting = {};
    if (stream) stream->pause();
    received_or_ended.set();
  }
  void end_receiving(Receiving how) noexcept {
    if (receiving != Receiving::open) return;
    receiving = how;
    wake_receiver();
  }
  void note_broken(const Error& reason) noexcept {
    try {
      if (!error) error.emplace(reason);
    } catch (const std::exception&) {
      // Without memory the text is lost.
    }
    note_broken(reason.initiator, reason.code, "the connection broke");
  }
  void note_broken(Initiator initiator, ErrorCode code, std::string_view text) noexcept {
    try {
      if (!error) error.emplace(Error::of_connection(initiator, code, std::string(text)));
    } catch (const std::exception&) {
      // The text is so short that it needs no memory.
      error.emplace(Error::of_connection(initiator, code, "it broke"));
    }
    writable.set();
    peer_end.set();
    breaks.set();
    finished.set();
  }

  Loop& loop;
  bool uses_loop = true;                           // Until close().
  std::unique_ptr<transport::Stream> stream;       // The socket, or TLS above it. Null after close().
  transport::ApplicationSocket* socket = nullptr;  // Part of `stream`.
  std::string peer;
  Receiving receiving = Receiving::open;
  MutableBytes waiting;        // Memory of a receive() that waits.
  std::size_t got = 0;         // Bytes that were received there.
  std::size_t late = 0;        // Bytes that were accepted after the send_now() that offered them.
  unsigned receives = 0;       // Since the last turn of the loop.
  std::optional<Error> error;  // Set: the connection is broken.
  Event received_or_ended;
  Event writable{true};
  Event peer_end;
  Event breaks;
  Event finished;
};

SocketStream::SocketStream(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}
SocketStream::SocketStream(SocketStream&&) noexcept = default;

Result<SocketStream> SocketStream::adopt(Loop& loop, int descriptor) {
  Descriptor socket(descriptor);
  if (!is_connected_stream(socket.get())) {
    return fail(ErrorCode::invalid_argument,
                "descriptor " + std::to_string(descriptor) + " is not a connected stream socket");
  }
  try {
    return SocketStream(std::make_shared<State>(loop, std::move(socket)));
  } catch (const std::exception& thrown) {
    return fail(ErrorCode::overloaded, "the loop cannot watch the socket: " + std::string(what_of(thrown)));
  }
}

SocketStream::~SocketStream() {
  if (state_) state_->close(ErrorCode::cancelled, "the SocketStream was destroyed");
}

// ---- Receiving ----

// The memory is the caller's again when the task ends, or is destroyed while it waits.
struct SocketStream::Receive {
  State& state;
  Receive(State& of, MutableBytes into) : state(of) {
    state.waiting = into;
    state.received_or_ended.reset();
  }
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;
  ~Receive() {
    if (!state.waiting.empty()) state.wake_receiver();
  }
};

Task<Result<std::size_t>> SocketStream::State::receive(std::shared_ptr<State> kept, MutableBytes into) {
  State& state = *kept;
  if (state.uses_loop && ++state.receives > socket_receives_per_turn) {
    state.receives = 0;
    co_await SocketTurn(state.loop);
  }
  state.got = 0;
  if (state.receiving == Receiving::open) {
    const Receive waits(state, into);
    state.stream->resume();
    if (!state.waiting.empty()) {
      state.receives = 0;
      co_await state.received_or_ended.wait();
    }
  }
  if (state.got == 0 && state.receiving == Receiving::failed) co_return std::unexpected(*state.error);
  co_return state.got;
}

Task<Result<std::size_t>> SocketStream::receive(MutableBytes into) { return State::receive(state_, into); }
void SocketStream::stop_receiving() noexcept { state_->end_receiving(State::Receiving::ended); }

// ---- Sending ----

std::size_t SocketStream::State::send_now(std::span<const ConstBuffer> pieces) {
  if (late > 0) return std::exchange(late, 0);
  if (error || std::ranges::all_of(pieces, [](const ConstBuffer& piece) { return piece.size == 0; })) return 0;
  const std::size_t accepted = stream->send(pieces);
  if (accepted == 0 && !error) writable.reset();
  return accepted;
}

std::size_t SocketStream::send_now(std::span<const ConstBuffer> pieces) { return state_->send_now(pieces); }

Task<Result<void>> SocketStream::State::send(std::shared_ptr<State> kept, Bytes bytes) {
  while (!bytes.empty()) {
    if (kept->error) co_return std::unexpected(*kept->error);
    const ConstBuffer piece{bytes.data(), bytes.size()};
    const std::size_t accepted = kept->send_now(std::span(&piece, 1));
    bytes = bytes.subspan(accepted);
    if (accepted == 0) co_await kept->writable.wait();
  }
  co_return Result<void>{};
}

Task<Result<void>> SocketStream::send(Bytes bytes) { return State::send(state_, bytes); }

Task<void> SocketStream::State::wait(std::shared_ptr<State> kept, SocketEvent event) {
  Event& awaited = event == SocketEvent::writable   ? kept->writable
                   : event == SocketEvent::peer_end ? kept->peer_end
                                                    : kept->breaks;
  co_await awaited.wait();
}

Task<void> SocketStream::wait(SocketEvent event) { return State::wait(state_, event); }

// ---- The end ----

Task<Result<void>> SocketStream::State::finish(std::shared_ptr<State> kept) {
  if (!kept->error) kept->stream->finish();
  co_await kept->finished.wait();
  if (kept->error) co_return std::unexpected(*kept->error);
  co_return Result<void>{};
}

Task<Result<void>> SocketStream::finish() { return State::finish(state_); }

void SocketStream::abort() noexcept {
  State& state = *state_;
  if (state.socket != nullptr) state.socket->shut_down();
  state.note_broken(Initiator::local, ErrorCode::cancelled, "the connection was aborted");
  state.end_receiving(State::Receiving::failed);
}

bool SocketStream::broken() const noexcept { return state_->error.has_value(); }
bool SocketStream::peer_ended() const noexcept { return state_->peer_end.is_set(); }

// ---- The peer, and TLS ----

std::string SocketStream::peer() const { return state_->peer; }

std::shared_ptr<const Identity> SocketStream::identity() const {
  return state_->stream ? state_->stream->identity() : nullptr;
}

std::string SocketStream::refusal_of_plain(const transport::ServerSecurity& security) const {
  if (!state_->stream) return state_->error->text;
  return transport::refusal_of_plain(security, *state_->stream);
}

void SocketStream::secure(transport::ServerSecurity& security, Bytes first) {
  State& state = *state_;
  if (!state.stream) return;
  try {
    state.stream = transport::protect(security, state.loop, std::move(state.stream), first);
    state.receives = 0;
    state.stream->pause();  // Until the next receive().
    state.stream->start(state.loop, state);
  } catch (const std::exception& thrown) {
    state.close(ErrorCode::unavailable, what_of(thrown));
  }
}

}  // namespace hawser
