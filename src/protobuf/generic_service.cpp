#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <coroutine>
#include <mutex>
#include <utility>

#include "base/try.h"
#include "hawser/detail/context_access.h"
#include "hawser/detail/handler.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/served_method.h"
#include "hawser/protobuf.h"
#include "hawser/protobuf_generic.h"
#include "hawser/protobuf_service.h"
#include "protobuf/client_call.h"
#include "protobuf/stream_state.h"
#include "rpc/port/stream_acceptor.h"

namespace hawser::pb {

// A message whose type is known at run time: a request as its bytes, or a reply as a message. Null: an empty reply.
struct AnyMessage {
  Bytes bytes;
  std::unique_ptr<google::protobuf::Message> message;
};

}  // namespace hawser::pb

template <>
inline constexpr bool hawser::codec::is_whole_message<hawser::pb::AnyMessage> = true;

template <>
struct hawser::codec::Codec<hawser::pb::AnyMessage> {
  static constexpr std::string_view signature = "protobuf";
  static constexpr std::size_t bytes_min = 0;
  static void size_whole(Sizer& sizer, const pb::AnyMessage& value) {
    if (value.message == nullptr) return;
    const std::size_t bytes = value.message->ByteSizeLong();
    sizer.add(bytes);
    if (bytes > INT_MAX) sizer.refuse(ErrorCode::limit_exceeded, "the response takes more than 2 GiB");
    if (!value.message->IsInitialized()) {
      sizer.refuse(ErrorCode::invalid_argument, "a required field of the response is not set");
    }
  }
  static void encode_whole(Encoder& encoder, const pb::AnyMessage& value) {
    if (value.message == nullptr) return;
    const auto bytes = static_cast<std::size_t>(value.message->GetCachedSize());
    static_cast<void>(
        value.message->SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(encoder.skip(bytes))));
  }
  static bool decode_whole(Decoder& decoder, pb::AnyMessage& value) {
    const std::size_t bytes = decoder.available();
    const std::byte* data = nullptr;
    if (!decoder.take(bytes, data, "message")) return false;
    value.bytes = {data, bytes};
    return true;
  }
  static void size(Sizer& sizer, const pb::AnyMessage& value) { size_whole(sizer, value); }
  static void encode(Encoder& encoder, const pb::AnyMessage& value) { encode_whole(encoder, value); }
  static bool decode(Decoder& decoder, pb::AnyMessage& value) { return decode_whole(decoder, value); }
};

namespace hawser::pb {

namespace {

// One call. The method may use it after the call's coroutine has been destroyed.
class GenericCall {
 public:
  GenericCall(Context& context, const google::protobuf::Message& request_type,
              const google::protobuf::Message& response_type)
      : controller(context), request(request_type.New()), response(response_type.New()) {}

  // Any thread.
  static void complete(const std::shared_ptr<GenericCall>& call) {
    call->controller.finish();
    const std::lock_guard lock(call->mutex_);
    call->done_ = true;
    if (call->waiting_) call->loop_->post([call] { call->resume(); });
  }

  // Suspends until `done` has run.
  auto completed(Loop& loop) {
    struct Awaiter {
      GenericCall& call;
      Loop& loop;
      bool await_ready() const {
        const std::lock_guard lock(call.mutex_);
        return call.done_;
      }
      bool await_suspend(std::coroutine_handle<> waiting) const {
        const std::lock_guard lock(call.mutex_);
        if (call.done_) return false;
        call.loop_ = &loop;
        call.waiting_ = waiting;
        return true;
      }
      void await_resume() const noexcept {}
      // From now on complete() does not use the loop.
      ~Awaiter() {
        const std::lock_guard lock(call.mutex_);
        call.waiting_ = nullptr;
      }
    };
    return Awaiter{*this, loop};
  }

  Controller controller;
  const std::unique_ptr<google::protobuf::Message> request;
  std::unique_ptr<google::protobuf::Message> response;

 private:
  void resume() {
    std::coroutine_handle<> waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting = std::exchange(waiting_, nullptr);
    }
    if (waiting) waiting.resume();
  }

  std::mutex mutex_;
  bool done_ = false;
  Loop* loop_ = nullptr;  // Not null while waiting_ is set.
  std::coroutine_handle<> waiting_;
};

// The `done` of a call. Deletes itself.
class Done final : public google::protobuf::Closure {
 public:
  explicit Done(std::shared_ptr<GenericCall> call) noexcept : call_(std::move(call)) {}
  void Run() override {
    const std::unique_ptr<Done> self(this);
    GenericCall::complete(call_);
  }

 private:
  const std::shared_ptr<GenericCall> call_;
};

// A method of a google::protobuf::Service.
class GenericMethod {
 public:
  GenericMethod(google::protobuf::Service* service, const google::protobuf::MethodDescriptor* method,
                GenericServiceOptions options)
      : service_(service),
        method_(method),
        options_(options),
        request_(service->GetRequestPrototype(method)),
        response_(service->GetResponsePrototype(method)),
        facts_(request_) {}

  Task<Result<AnyMessage>> serve(Context& context, const AnyMessage& raw) {
    const auto call = std::make_shared<GenericCall>(context, request_, response_);
    const detail::IncomingRequest& incoming = detail::ContextAccess::request(context);
    detail::DecodeCharge charge(incoming.account);
    codec::Decoder decoder(raw.bytes, {}, *incoming.decode_limits, nullptr, &charge);
    const std::byte* data = nullptr;
    if (!decoder.take(raw.bytes.size(), data, "message") || !read_message(decoder, raw.bytes, *call->request, facts_)) {
      co_return fail(decoder.error());
    }
    if (options_.offload) {
      auto work = [service = service_, method = method_, call] { run(*service, *method, call); };
      CO_TRY(co_await detail::LoopAccess::offload_for(
          context.loop(), &detail::ContextAccess::reply_sink(context).origin(), context.token(), std::move(work)));
    } else {
      run(*service_, *method_, call);
    }
    co_await call->completed(context.loop());
    std::vector<OwnedStream> streams = OwnedStream::all_of(call->controller.take_streams());
    if (call->controller.error()) {
      for (OwnedStream& stream : streams) {
        co_await stream->finish_on(context.loop());
      }
      co_return fail(*call->controller.error());
    }
    context.set_attachment(call->controller.response_attachment().take());
    if (!streams.empty()) {
      co_return co_await carry_streams(context, *call, std::move(streams));
    }
    AnyMessage reply;
    reply.message = std::move(call->response);
    co_return reply;
  }

 private:
  // Sends the response, which opens the streams that the method has accepted, and waits for the end of all of them.
  static Task<Result<AnyMessage>> carry_streams(Context& context, GenericCall& call, std::vector<OwnedStream> streams) {
    auto& acceptor = dynamic_cast<rpc::StreamAcceptor&>(detail::ContextAccess::reply_sink(context).origin());
    AnyMessage response;
    response.message = std::move(call.response);
    const codec::EncodedSize size = codec::encoded_size(response);
    if (size.too_large) co_return fail(size.code, size.why_not);
    Buffer body = Buffer::allocate(std::max<std::size_t>(size.body, 1)).slice(0, size.body);
    codec::Encoder encoder(body.mutable_data(), nullptr);
    codec::encode_all(encoder, response);
    rpc::StreamAcceptor::Cores cores =
        acceptor.accept_streams(detail::ContextAccess::call(context), body.bytes(),
                                detail::ContextAccess::reply(context).extras(), streams.front()->has_handler());
    if (cores.size() != streams.size()) co_return fail(ErrorCode::unavailable, "the caller has gone");
    detail::ContextAccess::reply(context) = {};
    const std::stop_callback stopped(context.token(), [&cores] {
      for (const auto& core : cores) {
        if (core == nullptr) continue;  // Its stream has ended.
        core->on_closed(Error::of_call(ErrorCode::cancelled, "call ended"));
      }
    });
    Scope others;
    for (std::size_t i = 1; i < streams.size(); ++i) {
      others.spawn(carry_stream(context, acceptor, *streams[i], cores[i]));
    }
    co_await carry_stream(context, acceptor, *streams.front(), cores.front());
    co_await others.join();
    co_return AnyMessage();
  }

  // Releases `core`, and with it the items that nobody has read.
  static Task<void> carry_stream(Context& context, rpc::StreamAcceptor& acceptor, StreamState& stream,
                                 std::shared_ptr<detail::StreamCore>& core) {
    co_await stream.carry(context.loop(), core, Duration::zero());
    co_await stream.finish_on(context.loop());
    acceptor.close_stream(*core);
    core.reset();
  }

  static void run(google::protobuf::Service& service, const google::protobuf::MethodDescriptor& method,
                  const std::shared_ptr<GenericCall>& call) {
    service.CallMethod(&method, &call->controller, call->request.get(), call->response.get(), new Done(call));
  }

  google::protobuf::Service* const service_;
  const google::protobuf::MethodDescriptor* const method_;
  const GenericServiceOptions options_;
  const google::protobuf::Message& request_;
  const google::protobuf::Message& response_;
  const MessageFacts facts_;
};

class GenericHandler final : public detail::Handler {
 public:
  GenericHandler(google::protobuf::Service* service, const google::protobuf::MethodDescriptor* method,
                 GenericServiceOptions given)
      : method_(service, method, given), handler_(&method_, {}) {}
  void serve(const detail::IncomingRequest& request) override { handler_.serve(request); }

 private:
  GenericMethod method_;
  detail::FunctionHandler<&GenericMethod::serve, GenericMethod> handler_;
};

}  // namespace

std::uint32_t message_signature() noexcept { return signature<&GenericMethod::serve>; }

void add_service(Server& server, google::protobuf::Service* service, GenericServiceOptions options) {
  const google::protobuf::ServiceDescriptor& type = *service->GetDescriptor();
  for (int i = 0; i < type.method_count(); ++i) {
    const google::protobuf::MethodDescriptor* const method = type.method(i);
    const std::string name = std::string(type.full_name()).append("/").append(method->name());
    server.add_method({.id = codec::fnv1a32(name),
                       .signature = signature<&GenericMethod::serve>,
                       .name = name,
                       .handler = std::make_unique<GenericHandler>(service, method, options),
                       .json = json_transcoder(method->input_type(), method->output_type())});
  }
}

}  // namespace hawser::pb
