#pragma once

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec/tie_fields.h"

// Finds the fields of a plain struct without a declaration by the user. The number of fields is the number of
// initialisers that the struct accepts; a structured binding with that many names gives access to them.
namespace hawser::codec {

// Largest number of fields of a struct that tie_fields() supports.
inline constexpr std::size_t field_count_max = 64;

// Converts to any field type. Used in unevaluated expressions only.
struct AnyField {
  template <class T>
  operator T&() const& noexcept;
  template <class T>
  operator T&() const&& noexcept;
};
// Like AnyField, for structs that cannot be copied.
struct AnyMovedField {
  template <class T>
  operator T() const&& noexcept;
};
// Converts to nothing. A type that it initialises takes whatever it is given, such as std::any.
struct NoField {};
// Converts to any union.
struct AnyUnion {
  template <class T>
    requires std::is_union_v<T>
  operator T() const noexcept;
};
// Converts to any base of `Derived`.
template <class Derived>
struct AnyBase {
  template <class T>
    requires(std::is_base_of_v<T, Derived> && !std::is_same_v<T, Derived>)
  operator T&() const& noexcept;
  template <class T>
    requires(std::is_base_of_v<T, Derived> && !std::is_same_v<T, Derived>)
  operator T() const&& noexcept;
};

template <class T>
using AnyFieldOf = std::conditional_t<std::is_copy_constructible_v<T>, AnyField, AnyMovedField>;

template <class T, std::size_t>
using Repeated = T;

template <class T, class... A>
concept BraceInitialisable = requires { T{A{}...}; };

// True if T can be initialised with `count` initialisers: it has at least that many fields.
template <class T, std::size_t count>
consteval bool takes_initialisers() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return BraceInitialisable<T, Repeated<AnyFieldOf<T>, i>...>;
  }(std::make_index_sequence<count>());
}
template <class T, std::size_t count = 0>
consteval std::size_t count_fields() {
  if constexpr (count <= field_count_max && takes_initialisers<T, count + 1>()) {
    return count_fields<T, count + 1>();
  } else {
    return count;
  }
}

// True if field `index` of `count` can be initialised by empty braces while all others have an initialiser. This fails
// for a C array, because each of its elements was counted as a field.
template <class T, std::size_t index, std::size_t count>
consteval bool is_plain_field() {
  return
      []<std::size_t... before, std::size_t... after>(std::index_sequence<before...>, std::index_sequence<after...>) {
        return requires {
          T{(static_cast<void>(before), AnyFieldOf<T>{})..., {}, (static_cast<void>(after), AnyFieldOf<T>{})...};
        };
      }(std::make_index_sequence<index>(), std::make_index_sequence<count - index - 1>());
}
template <class T, std::size_t count>
consteval bool has_plain_fields() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return (is_plain_field<T, i, count>() && ...);
  }(std::make_index_sequence<count>());
}

// True if a field is a union. GCC does not convert to an anonymous union, which ends the count of the fields; empty
// braces initialise it.
template <class T, std::size_t index>
concept UnionAt = []<std::size_t... i>(std::index_sequence<i...>) {
  return BraceInitialisable<T, Repeated<AnyFieldOf<T>, i>..., AnyUnion> &&
         !BraceInitialisable<T, Repeated<AnyFieldOf<T>, i>..., NoField>;
}(std::make_index_sequence<index>());
template <class T, std::size_t count>
consteval bool has_union() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return (UnionAt<T, i> || ...) || requires { T{Repeated<AnyFieldOf<T>, i>{}..., {}}; };
  }(std::make_index_sequence<count>());
}

enum class FieldDefect { none, not_default, base, too_many, has_union, c_array, bit_field };

template <class T>
consteval FieldDefect find_field_defect() {
  if constexpr (!BraceInitialisable<T>) {
    return FieldDefect::not_default;
  } else if constexpr (BraceInitialisable<T, AnyBase<T>> && !BraceInitialisable<T, NoField>) {
    return FieldDefect::base;
  } else if constexpr (constexpr std::size_t count = count_fields<T>(); count > field_count_max) {
    return FieldDefect::too_many;
  } else if constexpr (count == 0 || has_union<T, count>()) {
    return FieldDefect::has_union;
  } else if constexpr (!has_plain_fields<T, count>()) {
    return FieldDefect::c_array;
  } else {
    using Fields = decltype(tie_fields<count>(std::declval<T&>()));
    return std::is_same_v<Fields, BitFields> ? FieldDefect::bit_field : FieldDefect::none;
  }
}

// 0 for a struct with a defect, so that the compiler reports only the message about it.
template <class T>
consteval std::size_t find_field_count() {
  if constexpr (std::is_empty_v<T>) {
    return 0;
  } else {
    constexpr FieldDefect defect = find_field_defect<T>();
    static_assert(defect != FieldDefect::not_default,
                  "hawser: a field of this struct is a reference or has no default constructor, so that none can be "
                  "received; specialise hawser::codec::Codec for it");
    static_assert(defect != FieldDefect::base, "hawser: a struct that travels has no bases; make the base a field");
    static_assert(defect != FieldDefect::too_many,
                  "hawser: a struct that travels has at most 64 fields; group them in structs");
    static_assert(defect != FieldDefect::has_union,
                  "hawser: a field of this struct is a union, or has no name: make it a std::variant or name it, or "
                  "specialise hawser::codec::Codec for the struct");
    static_assert(defect != FieldDefect::c_array, "hawser: a field of this struct is a C array; make it a std::array");
    static_assert(defect != FieldDefect::bit_field,
                  "hawser: a field of this struct is a bit-field; make it an integer of its own, or specialise "
                  "hawser::codec::Codec for the struct");
    return defect == FieldDefect::none ? count_fields<T>() : 0;
  }
}
template <class T>
inline constexpr std::size_t field_count = find_field_count<T>();

// Returns references to the fields of an aggregate as a std::tuple, in the order of declaration.
template <class T>
constexpr auto fields_of(T& value) noexcept {
  if constexpr (constexpr std::size_t count = field_count<std::remove_const_t<T>>; count == 0) {
    static_cast<void>(value);
    return std::tuple<>();
  } else {
    return tie_fields<count>(value);
  }
}

template <class Tuple>
struct RemoveReferences;
template <class... T>
struct RemoveReferences<std::tuple<T...>> {
  using type = std::tuple<std::remove_reference_t<T>...>;
};
// The types of the fields as a std::tuple.
template <class T>
using field_types = typename RemoveReferences<decltype(fields_of(std::declval<T&>()))>::type;

}  // namespace hawser::codec
