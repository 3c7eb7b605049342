#include "negotiate/handshake.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace hawser::negotiate {
namespace {

// Fewer bytes than these are not called unknown: the answer to them depends on what follows.
constexpr std::size_t magic_bytes_least = 4;

}  // namespace

struct Handshake::Outcome final : detail::Posted {
  explicit Outcome(Handshake& of) : watch(of.alive_.watch()) {}
  void run() override {
    if (!watch) return;
    Handshake& handshake = *watch.get();
    if (handshake.other_) {
      // Copied, since the callee may destroy the handshake.
      const std::array<std::byte, sizeof(handshake.incoming_)>& from = handshake.incoming_;
      std::array<std::byte, FirstBytes::bytes_max> first;
      const std::size_t size = std::min(handshake.got_, first.size());
      std::memcpy(first.data(), from.data(), size);
      return handshake.done_.on_other(handshake, Bytes(first).first(size));
    }
    handshake.done_.on_hello(handshake, std::move(hello));
  }
  const Watch<Handshake> watch;
  Result<wire::Hello> hello;
};

Handshake::Handshake(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, Done& done,
                     const FirstBytes* others)
    : loop_(loop), deadline_(deadline), done_(done), stream_(std::move(stream)), others_(others) {
  outcome_ = std::make_unique<Outcome>(*this);
  timer_.start(loop, deadline);
  stream_->start(loop, *this);
}

Handshake::~Handshake() = default;

void Handshake::allow_silence(Time until, Duration rest) noexcept {
  if (got_ != 0) return;
  silent_until_ = until;
  rest_ = rest;
}

void Handshake::send(const wire::Hello& hello) {
  if (sent()) {
    outgoing_.clear();
    sent_ = 0;
  }
  const bool idle = outgoing_.empty();
  const std::vector<std::byte> bytes = wire::encode_hello(hello);
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  if (idle) send_rest();
}

void Handshake::expect_next() {
  restart();
  timer_.start(loop_, deadline_);
  stream_->resume();
}

void Handshake::restart() {
  outcome_ = std::make_unique<Outcome>(*this);
  got_ = 0;
  wanted_ = wire::hello_prefix_bytes;
  finished_ = false;
  other_ = false;
  unknown_ = false;
}

void Handshake::leave(std::string text) {
  restart();
  leaving_ = true;
  farewell_ = std::move(text);
  const Bytes bytes = as_bytes(farewell_);
  outgoing_.assign(bytes.begin(), bytes.end());
  sent_ = 0;
  timer_.start(loop_, loop_.after(farewell_max));
  send_rest();
  stream_->finish();
  stream_->resume();
}

void Handshake::send_rest() {
  const ConstBuffer rest{outgoing_.data() + sent_, outgoing_.size() - sent_};
  if (rest.size != 0) sent_ += stream_->send(std::span(&rest, 1));
}

void Handshake::sendable(std::size_t bytes) {
  sent_ += bytes;
  send_rest();
  if (sent()) {
    loop_.post([watch = alive_.watch()] {
      if (Handshake* const self = watch.get()) self->done_.on_sent(*self);
    });
  }
}

MutableBytes Handshake::receive_space() {
  if (leaving_) return incoming_;
  return MutableBytes(incoming_).subspan(got_, wanted_ - got_);
}

void Handshake::received(std::size_t bytes) {
  if (got_ == 0 && bytes != 0) take_first_byte();
  got_ += bytes;
  finish_if_it_throws([this] {
    if (leaving_) {
      if (got_ >= farewell_bytes_max) finish(fail(ErrorCode::protocol_error, "the peer keeps sending"));
    } else {
      take_hello();
    }
  });
}

void Handshake::take_first_byte() {
  if (std::exchange(silent_until_, Time()) == Time()) return;
  deadline_ = loop_.after(rest_);
  timer_.start(loop_, deadline_);
}

void Handshake::take_hello() {
  // Another protocol is detected at once, even if it never sends enough bytes for a hello.
  if (!wire::is_hello(Bytes(incoming_).first(got_))) return take_other();
  if (got_ < wanted_) return;
  if (wanted_ == wire::hello_prefix_bytes) {
    const Result<std::size_t> body = wire::hello_body_bytes(incoming_);
    if (!body) return finish(fail(body.error()));
    wanted_ += *body;
    if (got_ < wanted_) return;
  }
  finish(wire::decode_hello(Bytes(incoming_).first(wanted_)));
}

void Handshake::take_other() {
  const Bytes first = Bytes(incoming_).first(got_);
  const FirstBytes::Match match = others_ == nullptr ? FirstBytes::Match::no : others_->match(first);
  if (match == FirstBytes::Match::yes) {
    other_ = true;
    return finish(wire::Hello());
  }
  const bool more = match == FirstBytes::Match::more || got_ < magic_bytes_least;
  if (more && got_ < FirstBytes::bytes_max) {
    wanted_ = FirstBytes::bytes_max;
    return;
  }
  unknown_ = true;
  finish(fail(wire::hello_body_bytes(incoming_).error()));
}

void Handshake::ended(const Error& reason) {
  stream_ended_ = true;
  finish_if_it_throws([&] {
    Error error = reason;
    error.text = "the connection ended before the hello was complete: " + error.text;
    finish(fail(std::move(error)));
  });
}

void Handshake::expire() noexcept {
  if (got_ == 0 && deadline_ < silent_until_ && stream_->established()) {
    deadline_ = silent_until_;
    return timer_.start(loop_, deadline_);
  }
  finish_if_it_throws([this] {
    finish(fail(Error::of_connection(ErrorCode::unavailable,
                                     "the peer did not complete its hello in time (ClientOptions::connect_timeout, "
                                     "ServerOptions::handshake_timeout, or the idle_timeout of its protocols): it does "
                                     "not speak this protocol, or it is "
                                     "blocked or overloaded")));
  });
}

// An exception would end the process. When memory is exhausted, only the handshake ends.
template <class Step>
void Handshake::finish_if_it_throws(Step step) noexcept {
  try {
    step();
  } catch (const std::exception&) {
    // The text is short enough to need no allocation.
    finish(fail(Error::of_connection(ErrorCode::unavailable, "out of memory")));
  }
}

void Handshake::finish(Result<wire::Hello> hello) noexcept {
  if (std::exchange(finished_, true)) return;
  timer_.stop();
  // No further byte is read until the stream's next owner takes over.
  stream_->pause();
  // The loop delivers the result, since this function may be called from within the stream, which must not be destroyed
  // there.
  outcome_->hello = std::move(hello);
  loop_.post(std::unique_ptr<detail::Posted>(std::move(outcome_)));
}

}  // namespace hawser::negotiate
