#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "hawser/method.h"

namespace hawser {

template <class T>
class Reader;
template <class T>
class Writer;

namespace detail {

struct NoStream {};

template <class T>
struct ReaderItem {
  using type = NoStream;
};
template <class T>
struct ReaderItem<Reader<T>> {
  using type = T;
};
template <class T>
struct WriterItem {
  using type = NoStream;
};
template <class T>
struct WriterItem<Writer<T>> {
  using type = T;
};

// Splits the parameters of a handler: the arguments that a request carries, and the item types of its streams.
template <class Kept, class... Rest>
struct SplitStreams;
template <class... Kept>
struct SplitStreams<std::tuple<Kept...>> {
  using args = std::tuple<Kept...>;
  using incoming = NoStream;
  using outgoing = NoStream;
};
template <class... Kept, class First, class... Rest>
struct SplitStreams<std::tuple<Kept...>, First, Rest...> : SplitStreams<std::tuple<Kept..., First>, Rest...> {};
template <class... Kept, class T, class... Rest>
struct SplitStreams<std::tuple<Kept...>, Reader<T>, Rest...> : SplitStreams<std::tuple<Kept...>, Rest...> {
  using incoming = T;
};
template <class... Kept, class T, class... Rest>
struct SplitStreams<std::tuple<Kept...>, Writer<T>, Rest...> : SplitStreams<std::tuple<Kept...>, Rest...> {
  using outgoing = T;
};

template <class Tuple>
struct SplitTuple;
template <class... T>
struct SplitTuple<std::tuple<T...>> : SplitStreams<std::tuple<>, T...> {};

template <class T>
inline constexpr bool is_stream_end = false;
template <class T>
inline constexpr bool is_stream_end<Reader<T>> = true;
template <class T>
inline constexpr bool is_stream_end<Writer<T>> = true;

// The rules for the declaration of a handler. `P` are the parameters without a leading Context&.
template <class Facts, class Parameters = typename Facts::parameters>
struct HandlerRules;
template <class Facts, class... P>
struct HandlerRules<Facts, std::tuple<P...>> {
  static constexpr bool context_is_first = !(std::is_same_v<std::remove_cvref_t<P>, Context> || ...);
  static constexpr bool owns_streams = !((std::is_reference_v<P> && is_stream_end<std::remove_cvref_t<P>>) || ...);
  static constexpr bool has_inputs_only =
      !((std::is_lvalue_reference_v<P> && !std::is_const_v<std::remove_reference_t<P>> &&
         !std::is_same_v<std::remove_cvref_t<P>, Context> && !is_stream_end<std::remove_cvref_t<P>>) ||
        ...);
  // A plain function may return a `const T&`, like a view.
  using Return = typename Facts::return_type;
  static constexpr bool gives_value =
      !std::is_reference_v<typename Unwrapped<Return>::type> ||
      (std::is_lvalue_reference_v<Return> && std::is_const_v<std::remove_reference_t<Return>>);
  // Error is what a Result has in place of a value.
  static constexpr bool fails_by_result = !std::is_same_v<std::remove_cvref_t<typename Unwrapped<Return>::type>, Error>;
  static constexpr bool streams_are_last = [] {
    [[maybe_unused]] bool seen = false;  // Without parameters.
    bool last = true;
    ((is_stream_end<std::remove_cvref_t<P>> ? void(seen = true) : void(last = last && !seen)), ...);
    return last;
  }();
  static constexpr bool sound = Facts::is_function && context_is_first && owns_streams && has_inputs_only &&
                                gives_value && fails_by_result && streams_are_last;
};
// Reports each rule that the declaration of F breaks by one sentence. The caller goes on only if the rules are `sound`,
// so that the compiler reports nothing else.
template <auto F>
consteval bool check_handler() {
  using Rules = HandlerRules<function_traits<F>>;
  static_assert(function_traits<F>::is_function,
                "hawser: a handler is a function, a member function, or a lambda without captures: this class has no "
                "single call operator without template parameters; register a function that calls it");
  static_assert(Rules::context_is_first,
                "hawser: the Context of a handler is its first parameter and a reference: write `R f(hawser::Context& "
                "context, T argument)`");
  static_assert(Rules::owns_streams,
                "hawser: a handler owns its Reader and its Writer: write `hawser::Reader<T> in` without a reference");
  static_assert(Rules::has_inputs_only,
                "hawser: a handler gives no result through a parameter `T&`, since arguments travel to the server "
                "only: return the results, several as a struct or a std::tuple, and take `T`, `const T&` or a view");
  static_assert(Rules::gives_value,
                "hawser: a handler returns no reference that others could write to, and a Task none at all: write "
                "`T f()`, `const T& f()` or `hawser::Task<T> f()`; what a view or a `const T&` refers to must stay "
                "valid until the reply has been sent");
  static_assert(Rules::fails_by_result,
                "hawser: a handler that returns an Error would succeed with it: return `hawser::Result<T>`, or "
                "`hawser::Result<void>` without a value");
  static_assert(Rules::streams_are_last,
                "hawser: the Reader and the Writer of a handler are its last parameters: write `Task<R> f(T argument, "
                "hawser::Writer<U> out)`");
  return true;
}

// Reports what no `auto F` accepts, by one sentence ahead of the compiler's own. Functions with an `auto F` have a
// deleted overload with a WrongFunction, whose type the compiler finds by the guides below.
struct OneFunction;
template <class Use>
struct SeveralFunctions;
template <class Given>
struct WrongFunction {
  static_assert(sizeof(Given) == 0,
                "hawser: a handler is a function, a member function, or a lambda without captures: this object has "
                "captures or members; register a member function with a pointer to an object");
  static constexpr bool wrong = true;
};
template <class Use>
struct WrongFunction<SeveralFunctions<Use>> {
  static_assert(sizeof(Use) == 0,
                "hawser: this name stands for several functions: select one by a cast, `constexpr auto f_of_int = "
                "static_cast<int (*)(int)>(&f)`, or by `f<int>`, and name it by hawser::method_name_override");
  static constexpr bool wrong = true;
};
template <>
struct WrongFunction<OneFunction> {
  consteval WrongFunction(const auto&) noexcept {}
  static constexpr bool wrong = false;
};
template <class Use = decltype([] {})>  // Another type for each use, so that each is reported.
WrongFunction(...) -> WrongFunction<SeveralFunctions<Use>>;
template <class F>
WrongFunction(F) -> WrongFunction<std::conditional_t<std::is_class_v<F> && !std::is_empty_v<F>, F, OneFunction>>;

template <auto... functions>
consteval bool require_no_members() {
  constexpr bool none = (!function_traits<functions>::is_member && ...);
  static_assert(none,
                "hawser: a member function is called on an object: write `server.register_handler<&Shop::sell>(&shop)` "
                "with a pointer to it");
  return none;
}

// The properties of a method that both sides need: function_traits with the streams removed from the arguments.
//   args      std::tuple of the arguments that a request carries
//   incoming  T of a Reader<T> parameter, which the client writes; NoStream if there is none
//   outgoing  T of a Writer<T> parameter, which the client reads; NoStream if there is none
//   result    the type of the value that the reply carries; may be void
template <auto F>
struct MethodFacts : SplitTuple<typename function_traits<F>::args_tuple> {
  using Traits = function_traits<F>;
  using Split = SplitTuple<typename Traits::args_tuple>;
  static_assert(check_handler<F>());
  using result = typename Traits::result;
  static constexpr bool streams =
      !std::is_same_v<typename Split::incoming, NoStream> || !std::is_same_v<typename Split::outgoing, NoStream>;
  static constexpr std::string_view name = method_name<F>;
  static constexpr std::uint32_t id = method_id<F>;
  static constexpr std::uint32_t signature = [] {
    codec::Fnv1a64 hash;
    hash.add('F');
    codec::DescribeAll<typename Split::args>::run(hash);
    if constexpr (!std::is_same_v<typename Split::incoming, NoStream>) {
      hash.add('<');
      codec::describe<typename Split::incoming>(hash);
    }
    if constexpr (!std::is_same_v<typename Split::outgoing, NoStream>) {
      hash.add('|');
      codec::describe<typename Split::outgoing>(hash);
    }
    hash.add('>');
    if constexpr (std::is_void_v<result>) {
      hash.add('v');
    } else {
      codec::describe<result>(hash);
    }
    return hash.folded();
  }();
};

// True if all functions have different names on the wire, and different hashes of these names.
template <auto... functions>
consteval bool names_differ() {
  const std::uint32_t ids[] = {method_id<functions>...};
  for (std::size_t i = 0; i < sizeof...(functions); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (ids[i] == ids[j]) return false;
    }
  }
  return true;
}

template <class T>
inline constexpr bool is_task = false;
template <class T>
inline constexpr bool is_task<Task<T>> = true;

template <class T>
struct TaskValueOf {
  using type = void;
};
template <class T>
struct TaskValueOf<Task<T>> {
  using type = T;
};
// The type T of a Task<T>.
template <class T>
using TaskValue = typename TaskValueOf<T>::type;
// An object type in place of `T`, which may be void.
template <class T>
using NotVoid = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
inline constexpr bool is_result = false;
template <class T>
inline constexpr bool is_result<std::expected<T, Error>> = true;

}  // namespace detail
}  // namespace hawser
