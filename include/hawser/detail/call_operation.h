#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec.h"
#include "hawser/codec/views.h"
#include "hawser/detail/call_channel.h"
#include "hawser/detail/method_facts.h"
#include "hawser/reply.h"

namespace hawser {

namespace detail {

// How an argument is stored until it is encoded, and in which form it is encoded. Lvalues are stored by reference,
// rvalues by value. A caller may pass an owning type for a view and a view for an owning type, text in any form, or a
// value that converts to the parameter.
template <class Parameter, class Given>
struct Argument {
  using Bare = std::remove_cvref_t<Given>;
  static constexpr bool same = std::is_same_v<Bare, Parameter>;
  static constexpr bool text = !same && std::is_same_v<codec::Owned<Parameter>, std::string> &&
                               std::is_convertible_v<const Bare&, std::string_view>;
  static constexpr bool view_of =
      !same && !text && !std::is_array_v<Bare> && std::is_same_v<codec::Owned<Bare>, Parameter>;
  static constexpr bool viewed =
      !same && !text && !view_of && codec::contains_view<Parameter> && std::is_convertible_v<const Bare&, Parameter>;
  static_assert(same || text || view_of || viewed || std::is_convertible_v<Given, Parameter>,
                "hawser: an argument of this call does not convert to the handler's parameter; compare the types "
                "<Parameter, Given> named in this error with the handler's declaration");

  static_assert(!(std::is_floating_point_v<Bare> && std::is_integral_v<Parameter>),
                "hawser: an argument of this call is a floating-point number and the handler's parameter an integer, "
                "which would drop the fraction: round it and convert it first");

  using Stored = std::conditional_t<
      same || text || view_of || viewed,
      std::conditional_t<std::is_lvalue_reference_v<Given>, const std::remove_reference_t<Given>&, Bare>, Parameter>;

  static decltype(auto) encodable(const Stored& stored) {
    if constexpr (text) {
      return std::string_view(stored);
    } else if constexpr (viewed) {
      return Parameter(stored);
    } else {
      return (stored);
    }
  }
};

template <class Args, class... Given>
struct ArgumentsOf;
template <class... Parameter, class... Given>
  requires(sizeof...(Parameter) == sizeof...(Given))
struct ArgumentsOf<std::tuple<Parameter...>, Given...> {
  using stored = std::tuple<typename Argument<Parameter, Given>::Stored...>;
  // Calls `use` with the values to be encoded.
  template <class Use>
  static decltype(auto) apply(const stored& arguments, Use use) {
    return std::apply([&](const auto&... one) { return use(Argument<Parameter, Given>::encodable(one)...); },
                      arguments);
  }
};
template <class... Parameter, class... Given>
  requires(sizeof...(Parameter) != sizeof...(Given))
struct ArgumentsOf<std::tuple<Parameter...>, Given...> {
  static_assert(sizeof...(Parameter) == sizeof...(Given),
                "hawser: this call gives another number of arguments than the handler takes");
};

// True if the parameter gets another number than the caller has given.
template <class Parameter, class Given>
constexpr bool changes_number(const Given& given) noexcept {
  constexpr bool numbers =
      std::is_integral_v<Given> && !std::is_same_v<Given, bool> && !std::is_same_v<Parameter, bool>;
  if constexpr (numbers && std::is_integral_v<Parameter>) {
    const auto converted = static_cast<Parameter>(given);
    return static_cast<Given>(converted) != given || (converted < Parameter{}) != (given < Given{});
  }
  return false;
}
template <class... Parameter, class... Given>
constexpr bool change_number(const std::tuple<Parameter...>*, const Given&... given) noexcept {
  if constexpr (sizeof...(Parameter) == sizeof...(Given)) return (changes_number<Parameter>(given) || ...);
  return false;
}
// After the parameters of a function template that calls handler F with `arguments`.
#define HAWSER_FITTING_CONSTANTS                                                                                \
  HAWSER_ERROR_IF(                                                                                              \
      ::hawser::detail::change_number((typename ::hawser::detail::MethodFacts<F>::args*)nullptr, arguments...), \
      "hawser: an argument of this call is a constant that the handler's parameter cannot hold: pass one "      \
      "that it can, or convert it first")

// The result of a call: the value alone, with owning types in place of views, or the whole reply. store() makes it in
// `into`.
template <auto F>
struct ValueOutcome {
  using Declared = typename MethodFacts<F>::result;
  using Value = codec::Owned<Declared>;
  using type = Result<Value>;
  static void store(std::optional<type>& into, const Received& reply, MutableBytes) { into.emplace(read(reply)); }
  static type read(const Received& reply) {
    if constexpr (std::is_void_v<Value>) {
      codec::Decoder decoder(reply.body, reply.payload, *reply.decode_limits, codec::no_memory);
      if (!decoder.finish()) return std::unexpected(decoder.error());
      return {};
    } else {
      static_assert(!codec::contains_view<Value>,
                    "hawser: the result has views among its fields, which would point to freed memory: use "
                    "co_await client.call<f>(...).reply()");
      codec::DecodeArena arena;
      codec::Decoder decoder(reply.body, reply.payload, *reply.decode_limits, &arena);
      std::tuple<Value> value;
      if (!codec::decode_all(decoder, value)) return std::unexpected(decoder.error());
      return std::move(std::get<0>(value));
    }
  }
};
template <auto F>
struct ReplyOutcome {
  using type = Result<Reply<typename InPlace<typename MethodFacts<F>::result>::type>>;
  static void store(std::optional<type>& into, const Received& received, MutableBytes memory) {
    type& reply = into.emplace();
    if (Result<void> status = reply->read(received, memory); !status)
      reply = std::unexpected(std::move(status.error()));
  }
};

// The value, and how the server has ended the call.
template <auto F>
struct EndedOutcome {
  using type = EndedCall<typename ValueOutcome<F>::Value>;
  static void store(std::optional<type>& into, const Received& reply, MutableBytes) {
    into.emplace(ValueOutcome<F>::read(reply));
  }
};

template <class T>
inline constexpr bool is_ended_call = false;
template <class T>
inline constexpr bool is_ended_call<EndedCall<T>> = true;

// The value of a call with streams, whose operation keeps the CallOutcome.
template <auto F>
struct StreamsOutcome : ValueOutcome<F> {};

// The error of what a call has returned; null if there is none.
template <class R>
auto* error_of_call(R& returned) noexcept {
  if constexpr (is_ended_call<std::remove_const_t<R>>) {
    return error_of_call(returned.result);
  } else {
    return returned ? nullptr : &returned.error();
  }
}

// A call with a result type. ArgumentOperation adds the arguments.
template <auto F, class Outcome>
class ResultOperation : public CallOperation, public PooledFrame {
 public:
  using Type = typename Outcome::type;
  static constexpr bool keeps_outcome =
      std::is_same_v<Outcome, EndedOutcome<F>> || std::is_same_v<Outcome, StreamsOutcome<F>>;
  virtual ~ResultOperation() = default;

  void decode(const Received& reply) override {
    try {
      if constexpr (keeps_outcome) {
        if (!reply.metadata.empty()) outcome()->metadata = reply.metadata.copy();
      }
      Outcome::store(result_, reply, memory_);
    } catch (...) {
      // std::bad_alloc, or an exception of a codec of the application.
      reading_threw();
    }
  }
  MutableBytes memory() const noexcept override { return memory_; }
  CallOutcome* outcome() noexcept override {
    if constexpr (keeps_outcome) return outcome_ ? &*outcome_ : &outcome_.emplace();
    return nullptr;
  }
  CallOutcome take_outcome() noexcept { return outcome_ ? std::move(*outcome_) : CallOutcome(); }
  void set_memory(MutableBytes memory) noexcept { memory_ = memory; }
  void set_arguments_last() noexcept { request_.arguments_last = true; }

  using CallOperation::done, CallOperation::error, CallOperation::measure, CallOperation::resumed, CallOperation::start,
      CallOperation::wait, CallOperation::wait_later, CallOperation::wait_sent;

  Type take() {
    resumed();
    if constexpr (is_ended_call<Type>) {
      if (error()) result_.emplace(std::unexpected(std::move(*error())));
      result_->outcome = take_outcome();
    } else if (error()) [[unlikely]] {
      return std::unexpected(std::move(*error()));
    }
    return std::move(*result_);
  }

 protected:
  using CallOperation::CallOperation;

 private:
  MutableBytes memory_;
  std::optional<Type> result_;
  // Empty until the session, or the reply, has something for it.
  [[no_unique_address]] std::conditional_t<keeps_outcome, std::optional<CallOutcome>, std::tuple<>> outcome_;
};

struct NoOptions {};

template <auto F, class Outcome, class Options, class... Given>
class ArgumentOperation final : public ResultOperation<F, Outcome> {
  using Facts = MethodFacts<F>;
  using Arguments = ArgumentsOf<typename Facts::args, Given...>;

 public:
  ArgumentOperation(ClientLink& link, Options options, typename Arguments::stored&& arguments)
      : ResultOperation<F, Outcome>(link), options_(std::move(options)), arguments_(std::move(arguments)) {
    CallOperation::Request& request = this->request_;
    request.method = Facts::id;
    request.signature = Facts::signature;
    request.name = Facts::name;
    request.streams = Facts::streams;
    request.streams_in = !std::is_same_v<typename Facts::incoming, NoStream>;
    request.streams_out = !std::is_same_v<typename Facts::outgoing, NoStream>;
    ArgumentOperation::measure();
    if constexpr (std::is_same_v<Options, CallOptions>) request.options = &options_;
  }
  ~ArgumentOperation() override { CallOperation::withdraw(); }

  void measure() noexcept override {
    this->request_.size =
        Arguments::apply(arguments_, [](const auto&... value) { return codec::encoded_size(value...); });
  }
  void encode(std::byte* body, ConstBuffer* pieces) override {
    Arguments::apply(arguments_, [&](const auto&... value) {
      codec::Encoder encoder(body, pieces);
      codec::encode_all(encoder, value...);
    });
  }

 private:
  [[no_unique_address]] Options options_;
  const typename Arguments::stored arguments_;
};

}  // namespace detail

}  // namespace hawser
