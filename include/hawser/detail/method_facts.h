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

// The properties of a method that both sides need: function_traits with the streams removed from the arguments.
//   args      std::tuple of the arguments that a request carries
//   incoming  T of a Reader<T> parameter, which the client writes; NoStream if there is none
//   outgoing  T of a Writer<T> parameter, which the client reads; NoStream if there is none
//   result    the type of the value that the reply carries; may be void
template <auto F>
struct MethodFacts : SplitTuple<typename function_traits<F>::args_tuple> {
  using Traits = function_traits<F>;
  using Split = SplitTuple<typename Traits::args_tuple>;
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
  const std::uint32_t ids[] = {MethodFacts<functions>::id...};
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
