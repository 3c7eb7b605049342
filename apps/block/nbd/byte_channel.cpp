#include "block/nbd/byte_channel.h"

#include <coroutine>
#include <utility>

namespace hawser::block::nbd {
namespace {

// Lets the loop do other work.
struct NbdTurn {
  Loop& loop;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { loop.resume_soon(waiting); }
  void await_resume() const noexcept {}
};

}  // namespace

ByteChannel::ByteChannel(Loop& loop, SocketDescriptor socket, std::string peer, Owner& owner)
    : loop_(loop),
      owner_(owner),
      stream_(std::make_unique<SocketStream>(loop, std::move(socket), std::move(peer),
                                             static_cast<SocketStream::Owner&>(*this))),
      socket_(static_cast<SocketStream&>(*stream_)) {
  stream_->start(loop, *this);
}

ByteChannel::~ByteChannel() = default;

// ---- Receiving ----

Task<std::size_t> ByteChannel::receive(MutableBytes into) {
  if (++receives_ > receives_per_turn) {
    receives_ = 0;
    co_await NbdTurn{loop_};
  }
  if (ended_) co_return 0;
  got_ = 0;
  waiting_ = into;
  changed_.reset();
  stream_->resume();
  if (!waiting_.empty()) {
    receives_ = 0;
    co_await changed_.wait();
  }
  co_return got_;
}

void ByteChannel::received(std::size_t bytes) {
  if (bytes == 0) return;
  got_ = bytes;
  shaking_hands_ = false;
  waiting_ = {};
  stream_->pause();
  changed_.set();
}

void ByteChannel::stop_receiving() noexcept {
  ended_ = true;
  waiting_ = {};
  stream_->pause();
  changed_.set();
}

bool ByteChannel::continues_after_end() {
  stop_receiving();
  return true;
}

// ---- Sending ----

std::size_t ByteChannel::send(std::span<const ConstBuffer> pieces) {
  if (late_ > 0) return std::exchange(late_, 0);
  return broken() ? 0 : stream_->send(pieces);
}

void ByteChannel::sendable(std::size_t bytes) {
  late_ += bytes;
  owner_.on_writable();
}

Task<void> ByteChannel::finish() {
  stop_receiving();
  stream_->finish();
  while (!socket_.finished() && !broken()) {
    changed_.reset();
    co_await changed_.wait();
  }
}

// ---- The end ----

void ByteChannel::broken(const Error&) { on_socket_broken(); }

void ByteChannel::ended(const Error& reason) {
  if (std::exchange(shaking_hands_, false)) {
    loop_.log(LogLevel::info, "nbd", "TLS of a connection of " + socket_.peer() + " has failed: " + reason.text);
  }
  on_socket_broken();
}

void ByteChannel::on_socket_broken() {
  broken_ = true;
  stop_receiving();
  owner_.on_writable();
}

void ByteChannel::abort() noexcept {
  socket_.shut_down();
  on_socket_broken();
}

// ---- TLS ----

std::string ByteChannel::refusal_of_plain(const transport::ServerSecurity& security) const {
  return transport::refusal_of_plain(security, *stream_);
}

void ByteChannel::secure(transport::ServerSecurity& security, Bytes first) {
  stream_ = transport::protect(security, loop_, std::move(stream_), first);
  receives_ = 0;
  shaking_hands_ = true;
  stream_->start(loop_, *this);
}

}  // namespace hawser::block::nbd
