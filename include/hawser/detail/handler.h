#pragma once

#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "hawser/codec.h"
#include "hawser/detail/argument_memory.h"
#include "hawser/detail/context_access.h"
#include "hawser/detail/loop_access.h"
#include "hawser/detail/method_facts.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/detail/send_reply.h"
#include "hawser/handler_options.h"
#include "hawser/stream.h"

namespace hawser {

namespace detail {

// Executes the calls of function F: a plain function directly, a coroutine or an offloaded function within a coroutine
// of the library. `Object` is the class of a member function, or void.
template <auto F, class Object>
class FunctionHandler final : public Handler {
  using Facts = MethodFacts<F>;
  using Traits = typename Facts::Traits;
  using Args = typename Facts::args;
  using Memory = ArgumentMemory<Args>;
  using Return = typename Traits::return_type;
  using Value = typename Facts::result;
  using Kept = NotVoid<Return>;

  static constexpr bool is_coroutine = is_task<Return>;
  static_assert(is_coroutine || !Facts::streams,
                "hawser: a handler with Reader or Writer parameters must be a coroutine: return Task<...>");
  // Arguments with this much data inside the object could be sent from there, so they must not be moved meanwhile.
  static constexpr bool args_stay_valid_when_moved = sizeof(Args) < codec::out_of_band_bytes_min;

 public:
  FunctionHandler(Object* object, HandlerOptions given) noexcept : Handler(std::move(given)), object_(object) {}

  void serve(const IncomingRequest& request) override {
    if constexpr (is_coroutine) {
      serve_task(request, object_);
    } else if (options.offload) {
      serve_offloaded(request, object_);
    } else {
      serve_in_place(request);
    }
  }

 private:
  static bool read(const IncomingRequest& request, Args& args, Memory& memory) {
    codec::Decoder decoder = memory.decoder(request);
    try {
      if (codec::decode_all(decoder, args)) [[likely]]
        return true;
      Error error = decoder.error();
      error.scope = ErrorScope::call;
      request.sink.reply_error(request.call, error);
    } catch (...) {
      reply_thrown(request, Facts::name, "reading the arguments");
    }
    return false;
  }

  template <class... Leading, class... Trailing>
  static Return invoke(Object* object, Args& args, std::tuple<Leading&...> leading, Trailing... trailing) {
    return std::apply(
        [&](auto&... given) -> Return {
          if constexpr (Traits::is_member) {
            return std::apply(
                [&](auto&... lead) -> Return {
                  return (object->*F)(lead..., std::move(given)..., std::move(trailing)...);
                },
                leading);
          } else {
            static_cast<void>(object);
            return std::apply(
                [&](auto&... lead) -> Return { return F(lead..., std::move(given)..., std::move(trailing)...); },
                leading);
          }
        },
        args);
  }
  template <class... Trailing>
  static Return invoke(Object* object, Args& args, Context& context, Trailing... trailing) {
    if constexpr (Traits::has_context) {
      return invoke(object, args, std::tuple<Context&>(context), std::move(trailing)...);
    } else {
      return invoke(object, args, std::tuple<>(), std::move(trailing)...);
    }
  }

  // ---- Plain functions ----

  void serve_in_place(const IncomingRequest& request) {
    Memory memory(request);
    Args args{};
    if (!read(request, args, memory)) return;
    if constexpr (Traits::has_context) {
      Context context = ContextAccess::make(request, nullptr);
      run_in_place(request, args, memory, std::tuple<Context&>(context), &context);
    } else {
      run_in_place(request, args, memory, std::tuple<>(), nullptr);
    }
  }

  template <class Leading>
  void run_in_place(const IncomingRequest& request, Args& args, Memory& memory, Leading leading, Context* context) {
    try {
      if constexpr (std::is_void_v<Return>) {
        invoke(object_, args, leading);
        answer_in_place(request, args, memory, std::monostate(), context);
      } else {
        answer_in_place<Return>(request, args, memory, invoke(object_, args, leading), context);
      }
    } catch (...) {
      reply_thrown(request, Facts::name, "the handler");
    }
  }

  template <class R>
  static void answer_in_place(const IncomingRequest& request, Args& args, Memory& memory, R&& returned,
                              Context* context) {
    if constexpr (is_result<std::remove_cvref_t<R>>) {
      if (!returned) return request.sink.reply_error(request.call, handler_error(returned.error()));
    }
    const ReplyExtras extras = context == nullptr ? ReplyExtras() : ContextAccess::reply(*context).extras();
    with_value(returned, [&](const auto&... value) {
      const codec::EncodedSize size = codec::encoded_size(value...);
      if ((size.pieces == 0 && extras.attachment.empty()) || !request.stays(codec::out_of_band_bytes_min)) [[likely]] {
        return send_reply(request.sink, request.call, size, extras, nullptr, value...);
      }
      if constexpr (!args_stay_valid_when_moved) {
        return send_reply(request.sink, request.call, size, extras, nullptr, value...);
      } else {
        hold<std::remove_cvref_t<R>>(request, args, memory, std::forward<R>(returned),
                                     context == nullptr ? ReplyParts() : std::move(ContextAccess::reply(*context)));
      }
    });
  }

  // Keeps the memory of a large reply until it has been sent. Encodes before the arguments move into this frame: loans
  // refer to memory outside of the argument objects, but a short string has its characters inside.
  template <class R>
  static Serving hold(const IncomingRequest& request, Args& args, Memory& memory, R returned, ReplyParts parts) {
    ReplySink& sink = request.sink;
    const std::uint32_t id = request.call;
    try {
      ActiveCall call(request, ActiveCall::Keep::in_place);
      co_await call.self();
      with_value(returned, [&](const auto&... value) {
        send_reply(sink, id, codec::encoded_size(value...), parts.extras(), &call.loan(), value...);
      });
      [[maybe_unused]] const Memory kept_memory = std::move(memory);
      [[maybe_unused]] const Args kept = std::move(args);
      co_await call.released();
    } catch (...) {
      reply_thrown(sink, id, Facts::name, "sending the reply");
    }
  }

  // ---- Coroutines ----

  static Serving serve_task(const IncomingRequest& request, Object* object) {
    ReplySink& sink = request.sink;
    const std::uint32_t id = request.call;
    try {
      ActiveCall call(request, ActiveCall::Keep::copy_small);
      co_await call.self();
      if (!call.admitted()) co_return;
      Memory memory(call.request());
      Args args{};
      if (!read(call.request(), args, memory)) co_return;
      Context context = ContextAccess::make(call.request(), &call);
      std::optional<Error> error;
      std::optional<NotVoid<TaskValue<Return>>> returned;
      try {
        Return task = start(object, args, context, call);
        call.handler_frame = task.frame();
        if constexpr (std::is_void_v<TaskValue<Return>>) {
          co_await std::move(task);
          returned.emplace();
        } else {
          returned.emplace(co_await std::move(task));
        }
      } catch (...) {
        error = sink.exception_error(call.request().metadata, Facts::name, "the handler", exception_text());
      }
      finish(call, context, returned, error);
      co_await call.released();
    } catch (...) {
      reply_thrown(sink, id, Facts::name, "answering the call");
    }
  }

  static Return start(Object* object, Args& args, Context& context, ActiveCall& call) {
    constexpr bool reads = !std::is_same_v<typename Facts::incoming, NoStream>;
    constexpr bool writes = !std::is_same_v<typename Facts::outgoing, NoStream>;
    if constexpr (reads && writes) {
      return invoke(object, args, context, Reader<typename Facts::incoming>(call.stream()),
                    Writer<typename Facts::outgoing>(call.stream()));
    } else if constexpr (reads) {
      return invoke(object, args, context, Reader<typename Facts::incoming>(call.stream()));
    } else if constexpr (writes) {
      return invoke(object, args, context, Writer<typename Facts::outgoing>(call.stream()));
    } else {
      static_cast<void>(call);
      return invoke(object, args, context);
    }
  }

  // Sends the handler's result, or the error. Memory on loan is kept until released().
  template <class R>
  static void finish(ActiveCall& call, Context& context, std::optional<R>& returned, std::optional<Error>& error) {
    if constexpr (is_result<R>) {
      if (returned && !*returned) error = handler_error(std::move(returned->error()));
    }
    if (error) return call.sink().reply_error(call.id(), *error);
    // An error of the handler comes without an end before it: a reader does not take such a call for a complete one.
    if constexpr (Facts::streams) call.stream().end();
    answer(call, context, *returned);
  }

  template <class R>
  static void answer(ActiveCall& call, Context& context, const R& returned) {
    with_value(returned, [&](const auto&... value) {
      const codec::EncodedSize size = codec::encoded_size(value...);
      const ReplyExtras extras = ContextAccess::reply(context).extras();
      const bool loans = size.pieces != 0 || !extras.attachment.empty();
      send_reply(call.sink(), call.id(), size, extras, loans ? &call.loan() : nullptr, value...);
    });
  }

  // ---- Functions that block ----

  static Serving serve_offloaded(const IncomingRequest& request, Object* object)
    requires(!is_coroutine)
  {
    ReplySink& sink = request.sink;
    const std::uint32_t id = request.call;
    try {
      ActiveCall call(request, ActiveCall::Keep::copy_small);
      co_await call.self();
      if (!call.admitted()) co_return;
      Memory memory(call.request());
      Args args{};
      if (!read(call.request(), args, memory)) co_return;
      Context context = ContextAccess::make(call.request(), &call);
      std::optional<Error> error;
      std::optional<std::remove_cvref_t<Kept>> returned;
      std::optional<ActiveCall::Pin> pinned(std::in_place, call);
      try {
        auto work = [&args, &context, object]() -> std::remove_cvref_t<Kept> {
          if constexpr (std::is_void_v<Return>) {
            invoke(object, args, context);
            return {};
          } else {
            return invoke(object, args, context);
          }
        };
        Result<std::remove_cvref_t<Kept>> outcome =
            co_await LoopAccess::offload_for(call.sink().loop(), &call.sink().origin(), call.token(), std::move(work));
        if (outcome) {
          returned.emplace(std::move(*outcome));
        } else {
          error = std::move(outcome.error());
        }
      } catch (...) {
        error = sink.exception_error(call.request().metadata, Facts::name, "the handler", exception_text());
      }
      pinned.reset();
      finish(call, context, returned, error);
      co_await call.released();
    } catch (...) {
      reply_thrown(sink, id, Facts::name, "answering the call");
    }
  }

  Object* object_;
};

}  // namespace detail
}  // namespace hawser
