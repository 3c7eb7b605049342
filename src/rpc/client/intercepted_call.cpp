#include "rpc/client/intercepted_call.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "hawser/stream.h"
#include "rpc/client/client_session.h"
#include "rpc/client/further_streams.h"

namespace hawser::detail {

// One request to the connection. It encodes the arguments of the application's operation and passes the reply to it.
// Awaited once. It lies in the frame of the task of next(), and may be destroyed with it.
class InnerCall final : public CallOperation, public rpc::FurtherStreams {
 public:
  InnerCall(rpc::InterceptedCall& call, ClientLink& link, CallOptions& options) : CallOperation(link), call_(call) {
    request_ = call.outer_.request();
    request_.options = &options;
    call_.request_begins(*this);
  }
  ~InnerCall() {
    withdraw();
    call_.request_ends();
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiting) {
    InnerCall::measure();
    start();
    if (const bool refused = done() && error(); !refused) {
      if (stream_) call_.outer_.set_stream(stream_);
      if (!loaned_) call_.outer_sent();
    }
    return wait(waiting);
  }
  Result<void> await_resume() {
    resumed();
    if (error()) return fail(*error());
    return {};
  }
  // Ends the request with `error`, unless it has ended by itself, and resumes the awaiter at once. False: none awaits.
  bool stop(const Error& error) {
    if (!in_flight_ && queued_on_ == nullptr) return false;
    const std::coroutine_handle<> waiting = waiting_;
    if (in_flight_) channel_->cancel(id_, error);
    if (!done()) return false;
    if (queued_on_ != nullptr) queued_on_->forget(waiting);
    waiting.resume();
    return true;
  }

  void measure() noexcept override {
    call_.outer_.measure();
    request_.size = call_.outer_.request().size;
  }
  void encode(std::byte* body, ConstBuffer* pieces) override { call_.outer_.encode(body, pieces); }
  void decode(const Received& reply) override {
    try {
      call_.replied(reply);
      call_.outer_.error().reset();  // An earlier attempt may have left one.
      call_.outer_.decode(reply);
    } catch (const std::bad_alloc&) {
      error() = Error::of_call(ErrorCode::internal, "no memory to keep the reply");
    }
  }
  MutableBytes memory() const noexcept override { return call_.outer_.memory(); }
  CallOutcome* outcome() noexcept override { return call_.outer_.outcome(); }
  std::size_t further_streams() const noexcept override {
    const auto* const outer = dynamic_cast<const rpc::FurtherStreams*>(&call_.outer_);
    return outer == nullptr ? 0 : outer->further_streams();
  }
  void set_further(Cores cores) noexcept override {
    dynamic_cast<rpc::FurtherStreams&>(call_.outer_).set_further(std::move(cores));
  }
  void on_send_complete() noexcept override {
    CallOperation::on_send_complete();
    call_.outer_sent();
  }

 private:
  rpc::InterceptedCall& call_;
};

}  // namespace hawser::detail

namespace hawser::rpc {

struct InterceptedCall::Root::promise_type : detail::PooledFrame {
  explicit promise_type(InterceptedCall& on) noexcept : call(on) {}
  Root get_return_object() noexcept { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  auto final_suspend() const noexcept {
    struct Finish {
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<promise_type> ended) const noexcept { ended.promise().call.finish(); }
      void await_resume() const noexcept {}
    };
    return Finish{};
  }
  void return_void() const noexcept {}
  void unhandled_exception() const noexcept { std::terminate(); }

  InterceptedCall& call;
};

InterceptedCall::InterceptedCall(ClientInterception& by, detail::CallOperation& outer, std::uint32_t id, Time deadline)
    : InterceptorChain(*by.interceptors_, info_),
      by_(by),
      interceptors_(by.interceptors_),
      outer_(outer),
      id_(id),
      info_(outer.request().name, by.link_->protocol, by.link_->address, *by.loop_) {
  const detail::CallOperation::Request& request = outer.request();
  if (request.options != nullptr) info_.options_ = *request.options;
  // The outer operation watches the caller's token and deadline.
  info_.options_.token = {};
  if (deadline != Time::max()) info_.deadline_ = deadline;
  info_.streams_ = request.streams;
  info_.request_bytes_ = request.size.body + request.size.payload + info_.options_.attachment.size();
  root_ = drive();
}

InterceptedCall::~InterceptedCall() {
  if (root_.handle) root_.handle.destroy();
  end();
}

void InterceptedCall::start() { root_.handle.resume(); }

InterceptedCall::Root InterceptedCall::drive() {
  try {
    outcome_ = co_await run();
  } catch (const std::bad_alloc&) {
    outcome_ = fail(ErrorCode::internal, "no memory to run the interceptors");
  }
}

void InterceptedCall::finish() noexcept {
  end_outer(outcome_);
  by_.remove(id_);
}

void InterceptedCall::stop(const Error& error) {
  stopped_ = error;
  ClientInterception& by = by_;
  const std::uint32_t id = id_;
  if (inner_ != nullptr && inner_->stop(error) && !by.calls_.contains(id)) return;
  fail_outer(error);
  by.remove(id);
}

// ---- Requests ----

Task<Result<void>> InterceptedCall::make_call() {
  if (stopped_) co_return fail(*stopped_);
  if (CallOutcome* const outcome = outer_.outcome()) *outcome = {};  // An earlier attempt may have filled it.
  replied_ = false;
  failed_.reset();
  info_.reply_bytes_ = 0;
  info_.reply_metadata_ = Buffer();
  Result<void> outcome;
  if (by_.link_->connection == nullptr) {
    outcome = fail(by_.link_->reason);
    outcome.error().code = ErrorCode::not_sent;
  } else {
    CallOptions options = info_.options_;
    if (info_.deadline_) {
      options.timeout = std::max<Duration>(*info_.deadline_ - info_.loop_.now(), Duration(1));
    } else {
      options.timeout = forever;
    }
    detail::ClientLink link{by_.link_->connection, {}};
    ++info_.attempts_;
    // Until the outcome is known, and if this task is destroyed before.
    info_.repeatable_ = info_.options_.idempotent;
    const bool executed_before = std::exchange(executed_, true);
    detail::InnerCall inner(*this, link, options);
    outcome = co_await inner;
    const bool not_executed = !outcome && !replied_ && outcome.error().not_executed();
    if (not_executed) executed_ = executed_before;
    info_.repeatable_ = (not_executed && !executed_before) || info_.options_.idempotent;
  }
  if (!outcome) failed_ = outcome.error();
  co_return outcome;
}

Error InterceptedCall::thrown(std::string_view part, std::string text) {
  return Error::of_call(ErrorCode::internal, std::string(part) + " threw an exception: " + text);
}

std::optional<Result<void>> InterceptedCall::repeat(bool running) {
  if (running) {
    return fail(ErrorCode::internal, "an interceptor called next() twice at the same time: await the first call of it");
  }
  if (stopped_) return Result<void>(fail(*stopped_));
  if (info_.may_repeat()) return std::nullopt;
  if (failed_) return Result<void>(fail(*failed_));
  if (replied_) return Result<void>();
  return fail(ErrorCode::outcome_unknown, "the request was sent and may have been executed: it is not sent again");
}

// ---- The application's operation ----

void InterceptedCall::request_begins(detail::InnerCall& inner) noexcept {
  inner_ = &inner;
  ++by_.calls_at_connection_;
}

void InterceptedCall::request_ends() noexcept {
  inner_ = nullptr;
  --by_.calls_at_connection_;
}

void InterceptedCall::replied(const detail::Received& reply) {
  replied_ = true;
  info_.reply_bytes_ = reply.body.size() + reply.payload.size() + reply.attachment.size();
  info_.reply_metadata_ = Buffer::copy_of(reply.metadata.bytes());
}

void InterceptedCall::outer_sent() noexcept {
  if (std::exchange(sent_, true)) return;
  const detail::CallOperation::Request& request = outer_.request();
  info_.arguments_exist_ = request.arguments_last && !request.streams;
  outer_.on_send_complete();
}

void InterceptedCall::fail_outer(Error error) {
  sent_ = true;
  outer_.on_send_complete();
  if (outer_.stream() != nullptr) outer_.stream()->on_closed(error);
  outer_.complete(*by_.loop_, std::move(error));
}

void InterceptedCall::end_outer(Result<void>& outcome) {
  if (outcome && replied_) {
    sent_ = true;
    outer_.on_send_complete();
    return outer_.complete(*by_.loop_);
  }
  Error error;
  if (!outcome) {
    error = std::move(outcome.error());
    // Once a request may have been executed, no error may state the opposite.
    if (executed_ && error.not_executed()) {
      error.code = replied_ ? ErrorCode::application : ErrorCode::outcome_unknown;
    }
  } else if (failed_) {
    error = std::move(*failed_);  // There is no result that could be returned in its place.
  } else {
    error = Error::of_call(
        ErrorCode::internal,
        executed_ ? "an interceptor returned success before the reply had arrived: await next()"
                  : "an interceptor returned success without a call of next(): return an Error, or call next()");
  }
  fail_outer(std::move(error));
}

}  // namespace hawser::rpc
