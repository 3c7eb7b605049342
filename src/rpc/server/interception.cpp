#include "rpc/server/interception.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/try.h"
#include "hawser/detail/send_reply.h"
#include "hawser/stream.h"
#include "rpc/port/port_session.h"

namespace hawser::rpc {

using detail::ActiveCall;

class Interception::Handled {
 public:
  explicit Handled(Interception& on) noexcept : on_(on) { on.handled_ = this; }
  Handled(const Handled&) = delete;
  Handled& operator=(const Handled&) = delete;
  ~Handled() {
    if (queued_) on_.loop().forget(waiting_);
    on_.handled_ = nullptr;
    on_.abandon();
  }

  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> waiting) {
    waiting_ = waiting;
    on_.start_handler();
    return !on_.answered_;
  }
  Result<void> await_resume() {
    queued_ = false;
    waiting_ = nullptr;
    if (on_.reply_.state() == HeldReply::State::error) return fail(on_.reply_.error());
    return {};
  }

  // The handler has answered.
  void wake() {
    if (!waiting_ || queued_) return;
    on_.loop().resume_soon(waiting_);
    queued_ = true;
  }

 private:
  Interception& on_;
  std::coroutine_handle<> waiting_;
  bool queued_ = false;
};

Interception::Interception(ActiveCall& outer, const ServerInterceptors& interceptors, detail::Handler& handler,
                           const detail::ServedMethod& method, detail::CallDraw draw, BodyForm form)
    : InterceptorChain(interceptors, call_),
      outer_(outer),
      handler_(handler),
      method_(method),
      conversion_(outer, std::move(form)),
      call_(outer, method.name, method.streams_in || method.streams_out, draw) {}

Interception::~Interception() {
  end();
  if (end_queued_) loop().forget(awaits_end_);
  awaits_end_ = nullptr;  // leave() of the inner call must not resume the coroutine that is being destroyed.
  if (outer_.inner != nullptr) outer_.inner->destroy_coroutine();
}

Error Interception::thrown(std::string_view part, std::string text) {
  return exception_error(call_.metadata(), call_.method(), part, std::move(text));
}

// ---- The handler ----

Task<Result<void>> Interception::make_call() {
  if (outer_.stopped()) {
    co_return fail(outer_.request().deadline && loop().now() >= *outer_.request().deadline
                       ? ErrorCode::deadline_exceeded
                       : ErrorCode::cancelled,
                   "the caller did not wait any more when the interceptors called next()");
  }
  CO_TRY(co_await conversion_.run());
  co_return co_await Handled(*this);
}

void Interception::start_handler() {
  started_ = starting_ = true;
  const detail::IncomingRequest request = outer_.request_for(*this, call_.metadata());
  session().serve_within(handler_, method_.name, request);
  if (!answered_) session().handler_begun(outer_.id());
  starting_ = false;
}

void Interception::answered() noexcept {
  answered_ = true;
  if (starting_) return;
  try {
    if (outer_.end_wanted) {
      end_outer();
    } else if (handled_ != nullptr) {
      handled_->wake();
    }
  } catch (const std::bad_alloc&) {
    fail_connection();
  }
}

// The server has stopped and waited for a function on another thread, which has ended. The interceptors might wait for
// ever.
void Interception::end_outer() {
  loop().post([watch = alive_.watch()] {
    if (Interception* const self = watch.get()) self->outer_.destroy_coroutine();
  });
}

void Interception::abandon() noexcept {
  if (answered_ || outer_.inner == nullptr) return;
  if (outer_.inner->pinned()) {
    outer_.inner->request_stop(ErrorCode::cancelled, Initiator::local, "an interceptor has ended the call");
  } else {
    outer_.inner->destroy_coroutine();
  }
}

void Interception::enter(ActiveCall& call) { outer_.inner = &call; }

void Interception::leave(ActiveCall& call) noexcept {
  if (outer_.inner == &call) outer_.inner = nullptr;
  if (!awaits_end_ || end_queued_) return;
  try {
    if (outer_.end_wanted) return end_outer();
    loop().resume_soon(awaits_end_);
    end_queued_ = true;
  } catch (const std::bad_alloc&) {
    // The coroutine ends with its connection or its server.
    fail_connection();
  }
}

// ---- Its answer ----

std::byte* Interception::begin_reply(std::uint32_t, const codec::EncodedSize& size, const detail::ReplyExtras& extras) {
  if (answered_ || ended_) return nullptr;
  if (size.too_large) {
    reply_error(outer_.id(), Error::of_call(size.code, std::string("the result can't be encoded: ") + size.why_not));
    return nullptr;
  }
  return reply_.begin(size, extras);
}

void Interception::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  try {
    // The handler has run, so its reply is not refused. Later requests are, if it exceeds the limits.
    reply_.end(pieces, owner, outer_.request().account);
    call_.reply_bytes_ = reply_.bytes();
    if (call_.checksum_wanted_) call_.reply_checksum_ = reply_.checksum();
    answered();
  } catch (const std::bad_alloc&) {
    fail_connection();
  }
}

void Interception::reply_error(std::uint32_t, const Error& error) {
  if (answered_ || ended_) return;
  reply_.set_error(error);
  answered();
}

void Interception::refuse_unkept(std::uint32_t call) {
  if (outer_.request().account != nullptr) return reply_error(call, session().unkept_error(*outer_.request().account));
  reply_error(call, Error::of_call(ErrorCode::overloaded, "no memory to keep the request"));
}

void Interception::copy_and_release(SendCompletion& owner) {
  if (reply_.state() == HeldReply::State::passed) return outer_.sink().copy_and_release(owner);
  reply_.copy_and_release(owner);
}

void Interception::answer(Result<void>& outcome) {
  ended_ = true;
  end();  // A task of next() may exist that no interceptor awaits.
  reply_.release_charge();
  if (outcome && reply_.state() == HeldReply::State::reply) return forward();
  reply_.release_loan();
  const bool refused = reply_.state() == HeldReply::State::error;
  Error error;
  if (!outcome) {
    error = std::move(outcome.error());
    // Once the handler has run, no error may state that nothing was executed.
    if (started_ && !(refused && error == reply_.error())) error = detail::handler_error(std::move(error));
    error.scope = ErrorScope::call;
  } else if (refused) {
    error = reply_.take_error();  // There is no result that could be sent in its place.
  } else {
    error = Error::of_call(
        ErrorCode::internal,
        started_ ? "an interceptor returned success before the handler had answered: await next()"
                 : "an interceptor returned success without a call of next(): return an Error, or call next()");
  }
  outer_.sink().reply_error(outer_.id(), error);
}

void Interception::forward() {
  reply_.add_metadata(call_.reply_metadata());
  std::byte* const body = outer_.sink().begin_reply(outer_.id(), reply_.size(), reply_.extras());
  if (body == nullptr) return reply_.release_loan();
  if (!reply_.body().empty()) std::memcpy(body, reply_.body().data(), reply_.body().size());
  SendCompletion* owner = reply_.pass();
  if (owner == nullptr && !reply_.pieces().empty()) owner = &outer_.loan();
  outer_.sink().end_reply(reply_.pieces(), owner);
}

// ---- InterceptedHandler ----

namespace {

detail::Serving intercept(const detail::IncomingRequest& request, const ServerInterceptors& interceptors,
                          detail::Handler& handler, const detail::ServedMethod& method, detail::CallDraw draw,
                          BodyForm form) {
  detail::ReplySink& sink = request.sink;
  const std::uint32_t id = request.call;
  try {
    ActiveCall call(request, ActiveCall::Keep::copy_small);
    co_await call.self();
    if (!call.admitted()) co_return;
    call.observed = !interceptors.empty();
    // Items may come before the handler begins.
    if (method.streams_in || method.streams_out) call.stream();
    Interception interception(call, interceptors, handler, method, draw, std::move(form));
    {
      Result<void> outcome = co_await interception.run();
      interception.answer(outcome);
    }
    co_await interception.handler_end();
    co_await call.released();
  } catch (...) {
    detail::reply_thrown(sink, id, method.name, "answering the call");
  }
}

}  // namespace

void InterceptedHandler::serve(const detail::IncomingRequest& request) {
  detail::CallDraw draw;
  const auto skips = [&](const auto& interceptor) { return interceptor->skips(request.metadata, draw); };
  if (!std::ranges::all_of(interceptors_, skips)) {
    intercept(request, interceptors_, *handler_, method_, draw, {});
    return;
  }
  static_cast<PortSession&>(request.sink.origin()).serve_skipped(*handler_, method_.name, request);
}

// ---- Bodies that are not the arguments yet ----

namespace {

Result<Buffer> convert_here(PortSession& session, const detail::IncomingRequest& request, const BodyForm& form) {
  detail::ReceiveCharge charge;
  const std::size_t bytes = session.conversion_bytes(form, request.body.size());
  if (request.account != nullptr && !charge.add(*request.account, bytes)) {
    return fail(session.unkept_error(*request.account));
  }
  return form.arguments(request.body);
}

}  // namespace

void serve_with_form(const ServerInterceptors& interceptors, const detail::ServedMethod& method,
                     const detail::IncomingRequest& request, const BodyForm& form) {
  static const ServerInterceptors none;
  detail::CallDraw draw;
  const bool intercepted = !interceptors.empty();
  detail::Handler& handler = intercepted ? static_cast<InterceptedHandler&>(*method.handler).own() : *method.handler;
  const auto skips = [&](const auto& interceptor) { return interceptor->skips(request.metadata, draw); };
  if (!std::ranges::all_of(interceptors, skips)) {
    intercept(request, interceptors, handler, method, draw, form);
    return;
  }
  auto& session = static_cast<PortSession&>(request.sink.origin());
  // As long ones do, a short one waits for the memory of other conversions.
  const bool waits = request.account != nullptr && session.conversion_memory().held() &&
                     !request.account->plenty(session.conversion_bytes(form, request.body.size()));
  if (waits || !session.converts_here(form, request.body.size())) {
    intercept(request, none, handler, method, draw, form);
    return;
  }
  const Result<Buffer> arguments = convert_here(session, request, form);
  if (!arguments) {
    if (intercepted) return session.refuse_skipped(request, arguments.error());
    return request.sink.reply_error(request.call, arguments.error());
  }
  session.count_arguments(method, arguments->size());
  detail::IncomingRequest converted = request;
  converted.coded = false;
  converted.body = arguments->bytes();
  converted.head_block = arguments->block();
  if (intercepted) return session.serve_skipped(handler, method.name, converted);
  handler.serve(converted);
}

}  // namespace hawser::rpc
