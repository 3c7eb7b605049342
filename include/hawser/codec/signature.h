#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec/containers.h"
#include "hawser/codec/fields.h"
#include "hawser/codec/traits.h"
#include "hawser/codec/type_kind.h"
#include "hawser/error.h"

// Users of signatures include codec.h: the description of a type requires all codecs.
namespace hawser::codec {

// 64-bit FNV-1a: for each byte, xor it in, then multiply by the prime. Part of the wire format.
class Fnv1a64 {
 public:
  constexpr void add(char byte) noexcept {
    state_ ^= static_cast<unsigned char>(byte);
    state_ *= 0x0000'0100'0000'01b3;
  }
  constexpr void add(std::string_view text) noexcept {
    for (const char byte : text) add(byte);
  }
  // Adds the number in decimal, then a full stop.
  constexpr void add_number(std::uint64_t number) noexcept {
    if (number >= 10) add_digits(number / 10);
    add(static_cast<char>('0' + number % 10));
    add('.');
  }
  // The xor of the two halves of the state.
  constexpr std::uint32_t folded() const noexcept { return static_cast<std::uint32_t>(state_ ^ (state_ >> 32)); }

 private:
  constexpr void add_digits(std::uint64_t number) noexcept {
    if (number >= 10) add_digits(number / 10);
    add(static_cast<char>('0' + number % 10));
  }

  std::uint64_t state_ = 0xcbf2'9ce4'8422'2325;
};

// 32-bit FNV-1a of a text. Part of the wire format.
constexpr std::uint32_t fnv1a32(std::string_view text) noexcept {
  std::uint32_t state = 0x811c'9dc5;
  for (const char byte : text) {
    state ^= static_cast<unsigned char>(byte);
    state *= 0x0100'0193;
  }
  return state;
}

// True for a struct that declares `static constexpr std::size_t hawser_base_fields = N;`, so that fields can be
// appended.
template <class T>
inline constexpr bool is_evolvable = requires { T::hawser_base_fields; };

// A pair or tuple as a std::tuple.
template <class T>
struct AsTuple;
template <template <class...> class V, class... T>
struct AsTuple<V<T...>> {
  using type = std::tuple<T...>;
};

template <class Indices, class Tuple>
struct FirstOfImpl;
template <std::size_t... i, class Tuple>
struct FirstOfImpl<std::index_sequence<i...>, Tuple> {
  using type = std::tuple<std::tuple_element_t<i, Tuple>...>;
};
// The first `n` types of a std::tuple.
template <std::size_t n, class Tuple>
using FirstOf = typename FirstOfImpl<std::make_index_sequence<n>, Tuple>::type;

// Adds a description of the encoding of type `T` to `hash`. Types with the same encoding and meaning have the same
// description:
//   b bool | i1 i2 i4 i8 signed | u1 u2 u4 u8 unsigned, std::byte | c1 c2 c4 character | f4 f8 float | enumerations as
//   their underlying type | S element: string, view, vector, deque, list | An. element: array of n | K key: set |
//   M key value: map | O value: optional, unique_ptr | Vn. alternatives: variant | Dnum.den. representation: duration |
//   ( fields ): struct, pair, tuple | E base fields ): struct that evolves | Rn. : the struct n levels up, again |
//   X name ; : a type with a codec of its own
// `Open` are the structs that contain the described type, innermost first. They end the recursion.
template <class T, class... Open>
constexpr void describe(Fnv1a64& hash);

template <class Tuple, class... Open>
struct DescribeAll;
template <class... T, class... Open>
struct DescribeAll<std::tuple<T...>, Open...> {
  static constexpr void run(Fnv1a64& hash) { (describe<T, Open...>(hash), ...); }
};

template <class T, class... Open>
constexpr std::size_t levels_up() {
  std::size_t level = 0;
  static_cast<void>(((!std::is_same_v<T, Open> && (++level, true)) && ...));
  return level;
}

// The letter of a number or character in the description of a type.
template <class T>
constexpr char scalar_letter() {
  constexpr bool is_character = std::is_same_v<T, char> || std::is_same_v<T, char8_t> || std::is_same_v<T, char16_t> ||
                                std::is_same_v<T, char32_t> || std::is_same_v<T, wchar_t>;
  return is_character ? 'c' : std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
}

template <class T>
constexpr void describe_scalar(Fnv1a64& hash) {
  if constexpr (std::is_enum_v<T>) {
    describe_scalar<std::underlying_type_t<T>>(hash);
  } else {
    hash.add(scalar_letter<T>());
    hash.add(static_cast<char>('0' + sizeof(T)));
  }
}

template <class T, class... Open>
constexpr void describe_aggregate(Fnv1a64& hash) {
  constexpr std::size_t level = levels_up<T, Open...>();
  if constexpr (level != sizeof...(Open)) {
    hash.add('R');
    hash.add_number(level);
  } else if constexpr (is_evolvable<T>) {
    hash.add('E');
    DescribeAll<FirstOf<T::hawser_base_fields, field_types<T>>, T, Open...>::run(hash);
    hash.add(')');
  } else {
    hash.add('(');
    DescribeAll<field_types<T>, T, Open...>::run(hash);
    hash.add(')');
  }
}

template <class T, class... Open>
constexpr void describe(Fnv1a64& hash) {
  constexpr TypeKind kind = kind_of<T>;
  if constexpr (requires { Codec<T>::signature; }) {
    hash.add('X');
    hash.add(std::string_view(Codec<T>::signature));
    hash.add(';');
  } else if constexpr (kind == TypeKind::boolean) {
    hash.add('b');
  } else if constexpr (kind == TypeKind::scalar) {
    describe_scalar<T>(hash);
  } else if constexpr (kind == TypeKind::view || kind == TypeKind::contiguous || kind == TypeKind::growable) {
    hash.add('S');
    describe<std::remove_const_t<typename T::value_type>, Open...>(hash);
  } else if constexpr (kind == TypeKind::array) {
    hash.add('A');
    hash.add_number(array_count<T>);
    describe<typename Codec<T>::Element, Open...>(hash);
  } else if constexpr (kind == TypeKind::set) {
    hash.add('K');
    describe<typename T::key_type, Open...>(hash);
  } else if constexpr (kind == TypeKind::map) {
    hash.add('M');
    describe<typename T::key_type, Open...>(hash);
    describe<typename T::mapped_type, Open...>(hash);
  } else if constexpr (kind == TypeKind::optional) {
    hash.add('O');
    describe<typename T::value_type, Open...>(hash);
  } else if constexpr (kind == TypeKind::pointer) {
    hash.add('O');
    describe<typename T::element_type, Open...>(hash);
  } else if constexpr (kind == TypeKind::variant) {
    hash.add('V');
    hash.add_number(Codec<T>::count);
    DescribeAll<typename Alternatives<T>::type, Open...>::run(hash);
  } else if constexpr (kind == TypeKind::duration) {
    hash.add('D');
    hash.add_number(static_cast<std::uint64_t>(T::period::num));
    hash.add_number(static_cast<std::uint64_t>(T::period::den));
    describe<typename T::rep, Open...>(hash);
  } else if constexpr (kind == TypeKind::tuple) {
    hash.add('(');
    DescribeAll<typename AsTuple<T>::type, Open...>::run(hash);
    hash.add(')');
  } else if constexpr (kind == TypeKind::aggregate) {
    describe_aggregate<T, Open...>(hash);
  } else {
    static_cast<void>(sizeof(Codec<T>));  // Reports why T cannot be encoded.
  }
}

template <class T>
consteval std::uint32_t find_type_signature() {
  Fnv1a64 hash;
  describe<T>(hash);
  return hash.folded();
}
// Hash of the description of one type.
template <class T>
inline constexpr std::uint32_t type_signature = find_type_signature<T>();

}  // namespace hawser::codec
