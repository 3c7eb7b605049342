#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/codec/aggregate.h"
#include "hawser/codec/sequences.h"
#include "hawser/codec/signature.h"

// Views and the types that own what they show: a handler may take and give views, a caller is handed owners.
namespace hawser::codec {

template <class T>
struct OwnedType {
  using type = T;
};
// `T` with every view in it replaced by an owner of the same signature: std::string_view by std::string,
// std::span<const E> by std::vector<E>; through std::vector, optional, variant, pair, tuple and array.
// Structs stay as they are; see contains_view.
template <class T>
using Owned = typename OwnedType<T>::type;

template <class C, class Traits>
struct OwnedType<std::basic_string_view<C, Traits>> {
  using type = std::basic_string<C, Traits>;
};
template <class T>
struct OwnedType<std::span<T>> {
  using type = std::vector<Owned<std::remove_const_t<T>>>;
};
template <class T>
struct OwnedType<std::vector<T>> {
  using type = std::vector<Owned<T>>;
};
template <class T, std::size_t n>
struct OwnedType<std::array<T, n>> {
  using type = std::array<Owned<T>, n>;
};
template <template <class...> class V, class... T>
  requires(kind_of<V<T...>> == TypeKind::tuple || kind_of<V<T...>> == TypeKind::variant ||
           kind_of<V<T...>> == TypeKind::optional)
struct OwnedType<V<T...>> {
  using type = V<Owned<T>...>;
};
template <class T, class... Open>
consteval bool find_contains_view();

template <class Tuple, class... Open>
inline constexpr bool any_contains_view = false;
template <class... T, class... Open>
inline constexpr bool any_contains_view<std::tuple<T...>, Open...> = (find_contains_view<T, Open...>() || ...);

template <class T, class... Open>
consteval bool find_contains_view() {
  constexpr TypeKind kind = kind_of<T>;
  if constexpr (requires { Codec<T>::signature; }) {
    return false;  // Its author knows.
  } else if constexpr (kind == TypeKind::view) {
    return true;
  } else if constexpr (kind == TypeKind::contiguous || kind == TypeKind::growable || kind == TypeKind::optional) {
    return find_contains_view<typename T::value_type, Open...>();
  } else if constexpr (kind == TypeKind::array) {
    return find_contains_view<typename Codec<T>::Element, Open...>();
  } else if constexpr (kind == TypeKind::set) {
    return find_contains_view<typename T::key_type, Open...>();
  } else if constexpr (kind == TypeKind::map) {
    return find_contains_view<typename T::key_type, Open...>() ||
           find_contains_view<typename T::mapped_type, Open...>();
  } else if constexpr (kind == TypeKind::pointer) {
    return find_contains_view<typename T::element_type, Open...>();
  } else if constexpr (kind == TypeKind::variant) {
    return any_contains_view<typename Alternatives<T>::type, Open...>;
  } else if constexpr (kind == TypeKind::tuple) {
    return any_contains_view<typename AsTuple<T>::type, Open...>;
  } else if constexpr (kind == TypeKind::aggregate && !(std::is_same_v<T, Open> || ...)) {
    return any_contains_view<field_types<T>, T, Open...>;
  } else {
    return false;
  }
}
// True if a decoded T would show memory of the message, wherever in it the view is: Owned<T> that still does must not
// outlive the message.
template <class T>
inline constexpr bool contains_view = find_contains_view<T>();

template <class T>
consteval bool find_takes_memory();

template <class Tuple>
inline constexpr bool any_takes_memory = false;
template <class... T>
inline constexpr bool any_takes_memory<std::tuple<T...>> = (find_takes_memory<T>() || ...);

template <class T>
consteval bool find_takes_memory() {
  constexpr TypeKind kind = kind_of<T>;
  if constexpr (requires { Codec<T>::signature; }) {
    return true;  // Only its author knows.
  } else if constexpr (kind == TypeKind::boolean || kind == TypeKind::scalar || kind == TypeKind::duration) {
    return false;
  } else if constexpr (kind == TypeKind::view) {
    return alignof(typename T::value_type) > 1;  // A copy in the arena, if it comes misaligned.
  } else if constexpr (kind == TypeKind::optional) {
    return find_takes_memory<typename T::value_type>();
  } else if constexpr (kind == TypeKind::array) {
    return find_takes_memory<typename Codec<T>::Element>();
  } else if constexpr (kind == TypeKind::variant) {
    return any_takes_memory<typename Alternatives<T>::type>;
  } else if constexpr (kind == TypeKind::tuple) {
    return any_takes_memory<typename AsTuple<T>::type>;
  } else if constexpr (kind == TypeKind::aggregate) {
    return any_takes_memory<field_types<T>>;  // Of itself it has pointers and containers only.
  } else {
    return true;
  }
}
// False if no value of T takes heap memory when it is decoded, neither of its own nor in the arena.
template <class T>
inline constexpr bool takes_memory = find_takes_memory<T>();

}  // namespace hawser::codec
