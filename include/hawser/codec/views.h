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

// Views and their owning types: a handler may receive and return views, a caller gets owning types.
namespace hawser::codec {

template <class T>
struct OwnedType {
  using type = T;
};
// `T` with every view replaced by an owning type of the same signature: std::string_view by std::string,
// std::span<const E> by std::vector<E>; also within std::vector, optional, variant, pair, tuple and array. Structs are
// unchanged; see contains_view.
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
    return false;  // The author of the codec is responsible for views.
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
// True if a decoded T refers to memory of the message through a view at any depth. If this holds for Owned<T>, the
// value must not outlive the message.
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
    return true;  // Unknown, so assumed.
  } else if constexpr (kind == TypeKind::boolean || kind == TypeKind::scalar || kind == TypeKind::duration) {
    return false;
  } else if constexpr (kind == TypeKind::view) {
    return alignof(typename T::value_type) > 1;  // A misaligned one is copied to the arena.
  } else if constexpr (kind == TypeKind::optional) {
    return find_takes_memory<typename T::value_type>();
  } else if constexpr (kind == TypeKind::array) {
    return find_takes_memory<typename Codec<T>::Element>();
  } else if constexpr (kind == TypeKind::variant) {
    return any_takes_memory<typename Alternatives<T>::type>;
  } else if constexpr (kind == TypeKind::tuple) {
    return any_takes_memory<typename AsTuple<T>::type>;
  } else if constexpr (kind == TypeKind::aggregate) {
    return any_takes_memory<field_types<T>>;  // An aggregate takes heap memory only through its fields.
  } else {
    return true;
  }
}
// False if decoding a T never takes heap memory, neither for the value nor in the arena.
template <class T>
inline constexpr bool takes_memory = find_takes_memory<T>();

}  // namespace hawser::codec
