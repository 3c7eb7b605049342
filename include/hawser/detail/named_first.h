#pragma once

#include <type_traits>
#include <utility>

// GCC 12 destroys a temporary of a co_await expression twice if it has a destructor and is made by aggregate
// initialisation or by a lambda expression. With GCC 12, the functions of this library that are called in such
// expressions do not accept such temporaries. A variable passed by std::move() has the same type as a temporary and is
// not accepted either; hawser::moved() replaces it. See docs/decisions/0026-temporaries-that-gcc-12-destroys-twice.md.
namespace hawser {

// Refers to a variable whose value may be moved from. Trivially destructible. Must not outlive the variable.
template <class T>
class Moved {
 public:
  explicit Moved(T& from) noexcept : from_(&from) {}
  T&& get() const noexcept { return std::move(*from_); }

 private:
  T* from_;
};

// Replaces std::move(named) in calls of Channel::send(), with_timeout(), Loop::offload() and
// ClientPool::send_request(), and compiles with every compiler:
//   co_await channel.send(hawser::moved(item));
template <class T>
  requires(!std::is_const_v<T>)
Moved<T> moved(T& named) noexcept {
  return Moved<T>(named);
}

namespace detail {

// True if T, or one of its template arguments, is an aggregate with a destructor.
template <class T>
inline constexpr bool owning_aggregate = std::is_aggregate_v<T> && !std::is_trivially_destructible_v<T>;
template <template <class...> class Holder, class... T>
inline constexpr bool owning_aggregate<Holder<T...>> =
    !std::is_trivially_destructible_v<Holder<T...>> &&
    (std::is_aggregate_v<Holder<T...>> || ... || owning_aggregate<std::remove_cvref_t<T>>);

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
inline constexpr bool destroys_temporaries_twice = true;
#else
inline constexpr bool destroys_temporaries_twice = false;
#endif

// `Given` is deduced from a parameter `Given&&`. SafeToAwait is for values, SafeWorkToAwait for function objects.
template <class Given>
concept SafeToAwait =
    !destroys_temporaries_twice || std::is_lvalue_reference_v<Given> || !owning_aggregate<std::remove_cvref_t<Given>>;
template <class Given>
concept SafeWorkToAwait =
    !destroys_temporaries_twice || std::is_lvalue_reference_v<Given> || std::is_trivially_destructible_v<Given>;

// For arguments that are read in place. `Where` makes the compiler report each place of a program separately.
template <class Where, class... Given>
consteval void require_names() {
  static_assert((SafeToAwait<Given> && ...),
                "hawser: GCC 12 would destroy this temporary twice: give it a name first and pass the name, without "
                "std::move(), as in `hawser::CallOptions options{...}; co_await client.call<f>(options, x);`");
}
// For arguments that are moved from.
template <class Given>
consteval void require_moved() {
  static_assert(
      SafeToAwait<Given>,
      "hawser: GCC 12 would destroy this temporary twice: give it a name first and pass hawser::moved(name), as "
      "in `Item item{...}; co_await channel.send(hawser::moved(item));`");
}
template <class Given>
consteval void require_moved_work() {
  static_assert(SafeWorkToAwait<Given>,
                "hawser: GCC 12 would destroy this lambda or function object twice: give it a name first and pass "
                "hawser::moved(name), as in `auto work = [...] {...}; co_await loop.offload(hawser::moved(work));`");
}

template <class Given, class Bare = std::remove_cvref_t<Given>>
struct Taking {
  using type = std::decay_t<Given>;
  static Given&& take(std::remove_reference_t<Given>& given) noexcept { return static_cast<Given&&>(given); }
};
template <class Given, class T>
struct Taking<Given, Moved<T>> {
  using type = T;
  static T&& take(const Moved<T>& given) noexcept { return given.get(); }
};
// The type in which a moved argument is stored.
template <class Given>
using Taken = typename Taking<Given>::type;

}  // namespace detail
}  // namespace hawser
