#include <string>
#include <utility>

#include "exec/loop_work.h"
#include "hawser/detail/call_channel.h"
#include "hawser/detail/loop_access.h"
#include "hawser/detail/send_reply.h"
#include "hawser/detail/thread_call.h"
#include "hawser/stream.h"
#include "rpc/client/call_deadlines.h"

namespace hawser::detail {
namespace {

// Apart from CallOperation::start(), whose registers it would take up.
[[gnu::cold, gnu::noinline]] void set_not_sent(std::optional<Error>& error, const Error& reason) {
  error = reason;
  error->code = ErrorCode::not_sent;
}

}  // namespace

// Forwards a stop request, which may come from any thread, to the loop.
struct CallOperation::StopWatch {
  struct Request {
    Loop& loop;
    std::weak_ptr<CallChannel> channel;
    std::uint32_t call;
    void operator()() const {
      loop.post([weak = channel, id = call] {
        if (const std::shared_ptr<CallChannel> session = weak.lock()) {
          session->cancel(id, Error::of_call(ErrorCode::cancelled, "the caller cancelled the call"));
        }
      });
    }
  };
  StopWatch(const std::stop_token& token, Loop& loop, std::weak_ptr<CallChannel> channel, std::uint32_t call)
      : callback(token, Request{loop, std::move(channel), call}) {}
  std::stop_callback<Request> callback;
};

inline void CallOperation::stop_deadline() noexcept {
  deadline_.stop();
  if (deadlines_ != nullptr) deadlines_->remove(*this);
}

CallOperation::~CallOperation() {
  withdraw();
  if (queued_on_ != nullptr) queued_on_->forget(waiting_);
}

void CallOperation::end_early() noexcept {
  delete std::exchange(stop_, nullptr);
  stop_deadline();
  if (std::exchange(in_flight_, false)) {
    channel_->abandon(*this);
    // The application may still hold the stream's Reader and Writer. The text is short enough to need no allocation.
    if (stream_) stream_->on_closed(Error::of_call(ErrorCode::cancelled, "call dropped"));
  }
  if (std::exchange(loaned_, false)) channel_->copy_and_release(*this);
}

bool CallOperation::wait_later(std::coroutine_handle<> waiting) noexcept {
  if (in_flight_) LoopAccess::check_thread(channel_->loop());
  return wait(waiting);
}

void CallOperation::reading_threw() {
  error_ = Error::of_call(ErrorCode::internal, "reading the reply threw " + exception_text());
}

void CallOperation::start() {
  if (link_.channel != nullptr) return link_.channel->start(*this);
  done_ = true;
  set_not_sent(error_, link_.reason);
}

void CallOperation::begin(CallChannel& channel, std::uint32_t id, Time deadline, CallDeadlines* deadlines) {
  channel_ = &channel;
  id_ = id;
  in_flight_ = true;
  deadline_at_ = deadline;
  stop_deadline();  // The operation may have begun in another session before.
  if (deadlines != nullptr) {
    deadlines->add(*this);
  } else if (deadline != Time::max()) {
    deadline_.start(channel.loop(), deadline + LoopWork::lateness(channel.loop()));
  }
  if (request_.options != nullptr && request_.options->token.stop_possible()) {
    delete stop_;
    stop_ = new StopWatch(request_.options->token, channel.loop(), channel.weak(), id);
  }
}

void CallOperation::on_deadline() noexcept {
  channel_->cancel(id_, Error::of_call(ErrorCode::deadline_exceeded,
                                       "no reply within the call's timeout (CallOptions::timeout, "
                                       "ClientOptions::call_timeout); it may have been executed"));
}

void CallOperation::on_send_complete() noexcept {
  loaned_ = false;
  if (waiting_for_sent_) resume_by(channel_->loop());
}

void CallOperation::complete(Loop& loop) {
  in_flight_ = false;
  done_ = true;
  stop_deadline();
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
  if (!waiting_) {
    if (thread_call_ != nullptr) thread_call_->on_complete();
    return;
  }
  if (queued_on_ != nullptr) return;
  queued_on_ = &loop;
  loop.resume_soon(waiting_);
}

}  // namespace hawser::detail
