#include <utility>

#include "hawser/detail/client_port.h"
#include "hawser/stream.h"

namespace hawser::detail {

// Passes a stop request, which may come from any thread, on to the loop.
struct CallOperation::StopWatch {
  struct Request {
    Loop& loop;
    std::weak_ptr<ClientPort> port;
    std::uint32_t call;
    void operator()() const {
      loop.post([weak = port, id = call] {
        if (const std::shared_ptr<ClientPort> session = weak.lock()) {
          session->cancel(
              id, {ErrorCode::cancelled, ErrorScope::call, Initiator::local, 0, "the caller cancelled the call"});
        }
      });
    }
  };
  StopWatch(const std::stop_token& token, Loop& loop, std::weak_ptr<ClientPort> port, std::uint32_t call)
      : callback(token, Request{loop, std::move(port), call}) {}
  std::stop_callback<Request> callback;
};

CallOperation::~CallOperation() {
  withdraw();
  if (queued_on_ != nullptr) queued_on_->forget(waiting_);
}

void CallOperation::withdraw() noexcept {
  delete std::exchange(stop_, nullptr);
  if (std::exchange(in_flight_, false)) {
    port_->abandon(*this);
    // Its readers and writers may be kept elsewhere. The text is short enough to need no memory.
    if (stream_) stream_->on_closed(Error{ErrorCode::cancelled, ErrorScope::call, Initiator::local, 0, "call dropped"});
  }
  if (std::exchange(lent_, false)) port_->detach(*this);
}

void CallOperation::start() {
  if (link_.port != nullptr) return link_.port->start(*this);
  done_ = true;
  error_ = link_.reason;
  error_->code = ErrorCode::not_sent;
}

void CallOperation::begin(ClientPort& port, std::uint32_t id, Time deadline) {
  port_ = &port;
  id_ = id;
  in_flight_ = true;
  deadline_at_ = deadline;
  if (deadline != Time::max()) deadline_.start(port.loop(), deadline);
  if (request_.options != nullptr && request_.options->token.stop_possible()) {
    delete stop_;
    stop_ = new StopWatch(request_.options->token, port.loop(), port.weak(), id);
  }
}

void CallOperation::DeadlineTimer::fire(Timer& timer) noexcept {
  CallOperation& operation = static_cast<DeadlineTimer&>(timer).operation;
  operation.port_->cancel(operation.id_, {ErrorCode::deadline_exceeded, ErrorScope::call, Initiator::local, 0,
                                          "no reply within the call's timeout; it may have been executed"});
}

void CallOperation::payload_released() noexcept {
  lent_ = false;
  if (waiting_for_sent_) resume_by(port_->loop());
}

void CallOperation::complete(Loop& loop) {
  in_flight_ = false;
  done_ = true;
  deadline_.stop();
  delete std::exchange(stop_, nullptr);
  resume_by(loop);
}

void CallOperation::complete(Loop& loop, Error error) {
  if (maybe_executed_ && error.not_executed()) [[unlikely]] {
    error.code = ErrorCode::outcome_unknown;
    error.text = "sent again after its connection had ended, and then: " + error.text;
  }
  error_ = std::move(error);
  complete(loop);
}

void CallOperation::resume_by(Loop& loop) {
  if (!waiting_ || queued_on_ != nullptr) return;
  queued_on_ = &loop;
  loop.resume_soon(waiting_);
}

}  // namespace hawser::detail
