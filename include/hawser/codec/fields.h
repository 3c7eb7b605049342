#pragma once

#include <boost/pfr/core.hpp>
#include <boost/pfr/tuple_size.hpp>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace hawser::codec {

// Converts to any field type; it exists in unevaluated expressions only.
struct AnyField {
  template <class T>
  operator T&() const& noexcept;
  template <class T>
  operator T&() const&& noexcept;
};
struct AnyMovedField {
  template <class T>
  operator T() const&& noexcept;
};

// True if field `index` of `count` can be initialised by empty braces with all the others in place. It can't if it is a
// C array, whose elements were counted as so many fields, nor if it is a reference or has no default constructor.
template <class T, std::size_t index, std::size_t count>
consteval bool is_plain_field() {
  using Any = std::conditional_t<std::is_copy_constructible_v<T>, AnyField, AnyMovedField>;
  return
      []<std::size_t... before, std::size_t... after>(std::index_sequence<before...>, std::index_sequence<after...>) {
        return requires { T{(static_cast<void>(before), Any{})..., {}, (static_cast<void>(after), Any{})...}; };
      }(std::make_index_sequence<index>(), std::make_index_sequence<count - index - 1>());
}

template <class T>
inline constexpr std::size_t field_count = boost::pfr::tuple_size_v<T>;

template <class T>
consteval bool has_plain_fields() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return (is_plain_field<T, i, field_count<T>>() && ...);
  }(std::make_index_sequence<field_count<T>>());
}

// References to the fields of an aggregate, in order of declaration, as a std::tuple.
template <class T>
constexpr auto fields_of(T& value) noexcept {
  static_assert(has_plain_fields<std::remove_const_t<T>>(),
                "hawser: a field of this struct is a C array (make it a std::array), a reference, or of a type without "
                "a default constructor");
  return boost::pfr::structure_tie(value);
}

template <class Tuple>
struct RemoveReferences;
template <class... T>
struct RemoveReferences<std::tuple<T...>> {
  using type = std::tuple<std::remove_reference_t<T>...>;
};
// The fields' types as a std::tuple.
template <class T>
using field_types = typename RemoveReferences<decltype(fields_of(std::declval<T&>()))>::type;

}  // namespace hawser::codec
