#include "protocol/http/route_call.h"

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/try.h"
#include "hawser/detail/send_reply.h"
#include "hawser/detail/served_method.h"
#include "hawser/interceptor.h"
#include "protocol/http/gzip.h"
#include "protocol/http/http_session.h"
#include "protocol/http/request_access.h"
#include "rpc/server/body_conversion.h"

namespace hawser::protocol::http {
namespace {

// As interceptors see a route.
std::string name_of(const HttpRequest& request) {
  return std::string(request.method()) + " " + std::string(request.path());
}

// Its name with the path of the route.
std::string_view route_of(const detail::ActiveCall& call) noexcept {
  return call.method == nullptr ? std::string_view("(route)") : std::string_view(call.method->name);
}

// Notifies interceptors that have skipped the call of a route of its outcome.
class SkippedRoute {
 public:
  SkippedRoute(const rpc::ServerInterceptors& interceptors, const detail::ActiveCall& call, const HttpRequest& request)
      : interceptors_(interceptors), call_(call), request_(request), begin_(call.sink().loop().now()) {}
  SkippedRoute(const SkippedRoute&) = delete;
  SkippedRoute& operator=(const SkippedRoute&) = delete;
  ~SkippedRoute() {
    if (ended_) return;
    try {
      const Error error = Error::of_call(ErrorCode::cancelled, "the call was dropped");
      end(0, &error);
    } catch (const std::bad_alloc&) {
      // Nobody is notified then.
    }
  }

  // May throw std::bad_alloc.
  void end(std::size_t reply_bytes, const Error* error) {
    ended_ = true;
    const Duration duration = call_.sink().loop().now() - begin_;
    if (error == nullptr && duration == Duration::zero()) return;
    const std::string name = name_of(request_);
    const SkippedCall call(call_.request(), name, duration, reply_bytes, error, route_of(call_));
    for (const auto& interceptor : interceptors_) interceptor->skipped(call);
  }

 private:
  const rpc::ServerInterceptors& interceptors_;
  const detail::ActiveCall& call_;
  const HttpRequest& request_;
  const Time begin_;
  bool ended_ = false;
};

// Runs interceptors around the handler of a route.
class RouteChain final : public rpc::InterceptorChain<IncomingCall> {
 public:
  RouteChain(RouteResponder& responder, detail::ActiveCall& call, IncomingCall& info, const Route& route,
             HttpRequest& request, HttpBodyReader& reader, rpc::BodyConversion& conversion)
      : InterceptorChain(responder.interceptors(), info),
        responder_(responder),
        info_(info),
        call_(call),
        route_(route),
        request_(request),
        reader_(reader),
        conversion_(conversion) {}
  ~RouteChain() { end(); }

  std::optional<HttpResponse> response;

 private:
  Task<Result<void>> make_call() override {
    CO_TRY(co_await conversion_.run());
    RequestAccess::apply(request_, info_);
    Task<HttpResponse> task = route_.run(request_, reader_);
    call_.handler_frame = task.frame();
    response.emplace(co_await std::move(task));
    // As the replies of methods: charged until the interceptors have ended, and not refused.
    if (call_.request().account != nullptr) charge_.add(*call_.request().account, response->body.size(), true);
    co_return Result<void>{};
  }
  Error thrown(std::string_view part, std::string text) override {
    // Interceptors may have replaced the trace of the header.
    return responder_.sink().exception_error(info_.metadata(), request_.path(), part, std::move(text));
  }
  void entered(const void* frame) noexcept override { call_.handler_frame = frame; }

  RouteResponder& responder_;
  const IncomingCall& info_;
  detail::ActiveCall& call_;
  const Route& route_;
  HttpRequest& request_;
  HttpBodyReader& reader_;
  rpc::BodyConversion& conversion_;
  detail::ReceiveCharge charge_;
};

// Runs a route's handler with the interceptors of the server around it.
Task<Result<HttpResponse>> intercept_route(RouteResponder& responder, detail::ActiveCall& call, const Route& route,
                                           HttpRequest& request, HttpBodyReader& reader,
                                           rpc::BodyConversion& conversion, detail::CallDraw draw) {
  const std::string name = name_of(request);
  IncomingCall info(call, name, false, draw, route_of(call));
  RouteChain chain(responder, call, info, route, request, reader, conversion);
  CO_TRY(co_await chain.run());
  if (!chain.response) {
    co_return fail(ErrorCode::internal,
                   "an interceptor returned success without a call of next(): return an Error, or call next()");
  }
  for (const auto& field : info.reply_metadata()) chain.response->headers.push_back(field);
  co_return std::move(*chain.response);
}

}  // namespace

Error route_error(detail::ReplySink& sink, const HttpRequest& request, std::string_view name, std::string_view part,
                  std::string text) {
  return sink.exception_error(request.metadata(), name, part, std::move(text));
}

detail::Serving serve_route(RouteResponder& responder, const Route& route, std::string_view pattern,
                            detail::IncomingRequest request, KeptHead head, rpc::BodyForm form) {
  const std::uint32_t id = request.call;
  try {
    detail::ActiveCall call(request, detail::ActiveCall::Keep::copy_small);
    co_await call.self();
    call.observed = true;  // SkippedRoute notifies the interceptors.
    if (!call.admitted()) co_return;
    HttpRequest given = RequestAccess::make(call, std::move(head), pattern);
    rpc::BodyConversion conversion(call, std::move(form));
    HttpBodyReader reader = responder.reader_for(id, route.body_handler ? call.token() : std::stop_token());
    std::optional<HttpResponse> response;
    std::optional<Error> error;
    const rpc::ServerInterceptors& interceptors = responder.interceptors();
    detail::CallDraw draw;
    const auto skips = [&](const auto& interceptor) { return interceptor->skips(call.request().metadata, draw); };
    std::optional<SkippedRoute> skipped;
    try {
      if (std::ranges::all_of(interceptors, skips)) {
        if (!interceptors.empty()) skipped.emplace(interceptors, call, given);
        if (Result<void> converted = co_await conversion.run(); converted) {
          Task<HttpResponse> task = route.run(given, reader);
          call.handler_frame = task.frame();
          response.emplace(co_await std::move(task));
        } else {
          error = std::move(converted.error());
        }
      } else {
        Result<HttpResponse> outcome =
            co_await intercept_route(responder, call, route, given, reader, conversion, draw);
        if (outcome) {
          response.emplace(std::move(*outcome));
        } else {
          error = std::move(outcome.error());
        }
      }
    } catch (...) {
      error = route_error(responder.sink(), given, given.path(), "the handler", detail::exception_text());
    }
    if (skipped) skipped->end(response ? response->body.size() : 0, error ? &*error : nullptr);
    if (error) {
      responder.sink().reply_error(id, *error);
    } else if (response->stream) {
      gzip_parts(responder.http_options(), call.request().account, given.header("accept-encoding").value_or(""),
                 given.method() == "HEAD", *response);
      Task<void> streaming = responder.stream_route(id, given, *response);
      call.handler_frame = streaming.frame();
      co_await std::move(streaming);
    } else {
      detail::ReplySink& sink = responder.sink();
      co_await gzip_response(responder.http_options(), sink.loop(), &sink.origin(),
                             given.header("accept-encoding").value_or(""), *response);
      responder.reply_route(id, *response);
    }
  } catch (...) {
    detail::reply_thrown(responder.sink(), id, "a route", "answering the request");
  }
}

}  // namespace hawser::protocol::http
