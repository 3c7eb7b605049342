#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hawser::codec {

// How a type is encoded. It is detected by the members of the type, so that the headers of containers need not be
// included.
enum class TypeKind {
  boolean,     // u8, 0 or 1.
  scalar,      // Little-endian memory image: integers, characters, float, double, enumerations.
  view,        // std::string_view, std::span: a sequence that is decoded in place.
  contiguous,  // std::string, std::vector: u32 count, elements.
  growable,    // std::deque, std::list, std::vector<bool>: u32 count, elements, which are encoded one by one.
  array,       // std::array, C array: elements.
  set,         // u32 count, keys. A repeated key is an error.
  map,         // u32 count, (key, value)... A repeated key is an error.
  optional,    // u8 presence, value.
  pointer,     // std::unique_ptr: u8 presence, value.
  variant,     // u8 index, value.
  tuple,       // std::pair, std::tuple: elements.
  duration,    // std::chrono::duration: the count in its representation type.
  aggregate,   // Plain struct: its fields in order of declaration.
  message,     // A whole-message type; see is_whole_message.
  unsupported,
};

// Specialised as true for types that have an encoding of another system, such as protobuf messages. The body of a
// message that consists of one such value is exactly that encoding. Codec<T> of such a type also has size_whole(),
// encode_whole() and decode_whole() for this case.
template <class T>
inline constexpr bool is_whole_message = false;

template <class T>
inline constexpr bool is_view = false;
template <class C, class Traits>
inline constexpr bool is_view<std::basic_string_view<C, Traits>> = true;
template <class T>
inline constexpr bool is_view<std::span<T>> = true;

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t n>
inline constexpr bool is_std_array<std::array<T, n>> = true;

// Number of elements of a std::array or C array.
template <class T>
inline constexpr std::size_t array_count = std::extent_v<T>;
template <class T, std::size_t n>
inline constexpr std::size_t array_count<std::array<T, n>> = n;

template <class T>
inline constexpr bool is_tuple = false;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;

template <class T>
concept Resizable = requires(T& value, std::size_t n) {
  typename T::value_type;
  { value.size() } -> std::convertible_to<std::size_t>;
  value.resize(n);
  value.begin();
  value.end();
};
template <class T>
concept Contiguous = Resizable<T> && requires(T& value) {
  { value.data() } -> std::same_as<typename T::value_type*>;
  value.assign(std::as_const(value).data(), std::as_const(value).data());
};
template <class T>
concept Associative = requires(T& value) {
  typename T::key_type;
  typename T::value_type;
  { value.size() } -> std::convertible_to<std::size_t>;
  value.begin();
  value.end();
  value.clear();
  value.insert(std::declval<typename T::value_type>());
};
template <class T>
concept OptionalLike = requires(T& value) {
  typename T::value_type;
  { value.has_value() } -> std::same_as<bool>;
  { value.emplace() } -> std::same_as<typename T::value_type&>;
  { *value } -> std::same_as<typename T::value_type&>;
  value.reset();
};
template <class T>
concept UniquePointer = requires(T& value) {
  typename T::element_type;
  typename T::deleter_type;
  { value.release() } -> std::same_as<typename T::element_type*>;
};
template <class T>
concept DurationLike = requires(const T& value) {
  typename T::rep;
  T::period::num;
  T::period::den;
  { value.count() } -> std::same_as<typename T::rep>;
};

template <class T>
inline constexpr bool is_variant = false;
template <template <class...> class V, class... T>
  requires requires(const V<T...>& value) {
    { value.valueless_by_exception() } -> std::same_as<bool>;
    { value.index() } -> std::same_as<std::size_t>;
  }
inline constexpr bool is_variant<V<T...>> = true;

template <class T>
consteval bool is_boolean() {
  if constexpr (std::is_enum_v<T>) {
    return std::is_same_v<std::underlying_type_t<T>, bool>;
  } else {
    return std::is_same_v<T, bool>;
  }
}

template <class T>
consteval TypeKind find_kind() {
  if constexpr (std::is_const_v<T> || std::is_volatile_v<T> || std::is_reference_v<T>) {
    return TypeKind::unsupported;
  } else if constexpr (is_whole_message<T>) {
    return TypeKind::message;
  } else if constexpr (is_boolean<T>()) {
    return TypeKind::boolean;
  } else if constexpr (std::is_enum_v<T> || (std::is_arithmetic_v<T> && !std::is_same_v<T, long double>)) {
    return TypeKind::scalar;
  } else if constexpr (is_view<T>) {
    return TypeKind::view;
  } else if constexpr (is_std_array<T> || std::is_bounded_array_v<T>) {
    return TypeKind::array;
  } else if constexpr (!std::is_class_v<T>) {
    return TypeKind::unsupported;
  } else if constexpr (is_tuple<T>) {
    return TypeKind::tuple;
  } else if constexpr (Associative<T>) {
    return requires { typename T::mapped_type; } ? TypeKind::map : TypeKind::set;
  } else if constexpr (Contiguous<T>) {
    return TypeKind::contiguous;
  } else if constexpr (Resizable<T>) {
    return TypeKind::growable;
  } else if constexpr (is_variant<T>) {
    return TypeKind::variant;
  } else if constexpr (UniquePointer<T>) {
    return TypeKind::pointer;
  } else if constexpr (OptionalLike<T>) {
    return TypeKind::optional;
  } else if constexpr (DurationLike<T>) {
    return TypeKind::duration;
  } else if constexpr (std::is_aggregate_v<T>) {
    return TypeKind::aggregate;
  } else {
    return TypeKind::unsupported;
  }
}

template <class T>
inline constexpr TypeKind kind_of = find_kind<T>();

// The customisation point. A specialisation for a user's type provides these members, like the built-in ones:
//   static constexpr std::string_view signature = "app.Address";  // Changes when the encoding changes.
//   // Smallest size of an encoded value in the body; not 0 if possible.
//   static constexpr std::size_t bytes_min = 4;
//   static void size(Sizer& sizer, const Address& value);
//   static void encode(Encoder& encoder, const Address& value);
//   static bool decode(Decoder& decoder, Address& value);         // `value` is default-constructed.
// They usually forward the parts to codec::measure, codec::encode and codec::decode. A codec that recurses through a
// pointer of its own calls enter() and leave() of the Sizer and the Decoder around that.
template <class T>
struct Codec;

}  // namespace hawser::codec
