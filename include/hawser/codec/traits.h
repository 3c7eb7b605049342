#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "hawser/codec/decoder.h"
#include "hawser/codec/encoder.h"
#include "hawser/codec/type_kind.h"

namespace hawser::codec {

// Properties of codecs that other codecs use. A user's codec may omit the first two:
//   is_block   the encoding equals the memory image: sequences are copied as one block and can be viewed in place;
//   is_fixed   every value takes exactly `bytes_min` in the body and nothing in the payload;
//   bytes_min  smallest size of an encoded value in the body.
template <class T>
consteval bool find_is_block() {
  if constexpr (requires { Codec<T>::is_block; }) {
    return Codec<T>::is_block;
  } else {
    return false;
  }
}
template <class T>
consteval bool find_is_fixed() {
  if constexpr (requires { Codec<T>::is_fixed; }) {
    return Codec<T>::is_fixed;
  } else {
    return false;
  }
}
template <class T>
inline constexpr bool is_block = find_is_block<T>();
template <class T>
inline constexpr bool is_fixed = find_is_fixed<T>();
template <class T>
inline constexpr std::size_t bytes_min = Codec<T>::bytes_min;

// Memory of a node of a list, tree or hash table in addition to its value, for DecodeLimits.
inline constexpr std::size_t node_overhead_bytes = 4 * sizeof(void*);
// Memory of a heap allocation in addition to its bytes.
inline constexpr std::size_t allocation_overhead_bytes = 2 * sizeof(void*);
// Memory that an empty std::deque allocates, in contrast to other containers: a node, which has room for at least one
// element, and the map of nodes.
constexpr std::size_t empty_deque_bytes(std::size_t element_bytes) noexcept {
  constexpr std::size_t node_bytes_min = 512;
  return (element_bytes < node_bytes_min ? node_bytes_min : element_bytes) + 8 * sizeof(void*) +
         2 * allocation_overhead_bytes;
}

template <class T>
concept HasNodes = requires(T& value) { value.splice(value.begin(), value); };  // std::list
template <class T>
concept HasChunks = requires(T& value) {  // std::deque
  value.push_front(std::declval<typename T::value_type>());
  value[0];
};

// Heap memory in bytes of a default-constructed T; 0 if its codec does not state it. It matters because a peer can
// request 1'000 deques with 4 KB.
template <class T>
consteval std::size_t find_empty_heap_bytes() {
  if constexpr (requires { Codec<T>::empty_heap_bytes; }) {
    return Codec<T>::empty_heap_bytes;
  } else {
    return 0;
  }
}
template <class T>
inline constexpr std::size_t empty_heap_bytes = find_empty_heap_bytes<T>();

template <class Tuple>
struct TupleFacts;
template <class... T>
struct TupleFacts<std::tuple<T...>> {
  static constexpr bool all_blocks = (is_block<T> && ...);
  static constexpr bool all_fixed = (is_fixed<T> && ...);
  static constexpr std::size_t bytes_sum = (std::size_t{0} + ... + bytes_min<T>);
  static constexpr std::size_t empty_heap_sum = (std::size_t{0} + ... + empty_heap_bytes<T>);
};

// These functions measure, encode or decode one value of any type.
template <class T>
void measure_one(Sizer& sizer, const T& value) {
  if constexpr (is_fixed<T>) {
    sizer.add(bytes_min<T>);
  } else {
    Codec<T>::size(sizer, value);
  }
}
template <class T>
void encode_one(Encoder& encoder, const T& value) {
  Codec<T>::encode(encoder, value);
}
template <class T>
[[nodiscard]] bool decode_one(Decoder& decoder, T& value) {
  return Codec<T>::decode(decoder, value);
}

// Catches every type without an encoding. The members exist so that the compiler reports only the message below.
template <class T>
struct Codec {
  static_assert(
      kind_of<T> != TypeKind::unsupported,
      "hawser: this type can't travel. Use numbers, enumerations, std::string, std containers, std::optional, "
      "std::variant, std::unique_ptr, or a struct of such with public fields and neither constructors nor "
      "bases; or specialise hawser::codec::Codec for it. Raw pointers, references and shared_ptr can't.");
  static constexpr std::size_t bytes_min = 0;
  static void size(Sizer&, const T&) {}
  static void encode(Encoder&, const T&) {}
  static bool decode(Decoder&, T&) { return false; }
};

}  // namespace hawser::codec
