#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "hawser/codec.h"

// Properties of a function at compile time: its name, its types, and the hashes of both, by which client and server
// agree. A function is given as a template argument, with or without `&`: method_name<ns::echo>,
// method_name<&Shop::order>. An overloaded function needs a cast that selects one overload.
namespace hawser {

class Context;
template <class T>
class Task;

// Specialise this to give a function another name on the wire. It is needed if the automatic name has one of the limits
// that method_name lists:
//   template <> inline constexpr std::string_view hawser::method_name_override<&add<double>> = "add<double>";
template <auto function>
inline constexpr std::string_view method_name_override{};

namespace detail {

// The text of a name, with fixed capacity, so that a constant expression can hold it.
template <std::size_t room>
struct NameText {
  std::array<char, room> text{};
  std::size_t size = 0;

  constexpr void append(std::string_view part) noexcept {
    for (const char c : part) text[size++] = c;
  }
  constexpr std::string_view view() const noexcept { return {text.data(), size}; }
};

struct Respelling {
  std::string_view from;
  std::string_view to;
};
// Spellings of GCC and, of the last two, of Clang with libc++; and the common spellings that replace them.
inline constexpr Respelling respellings[] = {
    {"{anonymous}", "(anonymous)"},
    {"(anonymous namespace)", "(anonymous)"},
    {"std::__cxx11::", "std::"},
    {"long long unsigned int", "unsigned long long"},
    {"long unsigned int", "unsigned long"},
    {"short unsigned int", "unsigned short"},
    {"long long int", "long long"},
    {"long int", "long"},
    {"short int", "short"},
    {" >", ">"},
    {" *", "*"},
    {" &", "&"},
    {"std::string_view", "std::basic_string_view<char>"},
    {"std::string", "std::basic_string<char>"},
};
// The most characters that a name becomes longer by a respelling, for each of its characters: "std::string".
constexpr std::size_t respelled_bytes(std::size_t bytes) noexcept { return bytes + (bytes / 11 + 1) * 12; }

constexpr bool is_name_character(char c) noexcept {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// `name` without the template arguments of the function itself, which Clang does not print.
constexpr std::string_view without_trailing_arguments(std::string_view name) noexcept {
  if (name.empty() || name.back() != '>') return name;
  std::size_t depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    if (name[i] == '>') ++depth;
    if (name[i] == '<' && --depth == 0) {
      const std::string_view head = name.substr(0, i);
      return head.ends_with("operator") || head.ends_with("operator<") ? name : head;
    }
  }
  return name;  // For operator> and similar.
}

template <std::size_t room>
constexpr NameText<room> respell(std::string_view name) noexcept {
  NameText<room> out;
  while (!name.empty()) {
    const Respelling* match = nullptr;
    // A spelling is replaced only at the beginning of a word: `along int` contains no `long int`.
    if (out.size == 0 || !is_name_character(out.text[out.size - 1]) || !is_name_character(name.front())) {
      for (const Respelling& respelling : respellings) {
        if (match != nullptr || !name.starts_with(respelling.from)) continue;
        const std::string_view rest = name.substr(respelling.from.size());
        // Nor is a spelling that ends in the midst of a word: `std::stringstream` contains no `std::string`.
        if (rest.empty() || !is_name_character(respelling.from.back()) || !is_name_character(rest.front()))
          match = &respelling;
      }
    }
    out.append(match != nullptr ? match->to : name.substr(0, 1));
    name.remove_prefix(match != nullptr ? match->from.size() : 1);
  }
  return out;
}

// Returns "... [F = &ns::echo]". The return type is not a class, because GCC would explain the alias behind a class in
// the same brackets.
template <auto F>
constexpr const char* describe_argument() noexcept {
  return __PRETTY_FUNCTION__;
}
template <auto F>
constexpr std::string_view argument_text() noexcept {
  const std::string_view text = describe_argument<F>();
  const std::size_t begin = text.find("F = ") + 4;
  return text.substr(begin, text.rfind(']') - begin);
}

template <auto F>
consteval auto make_method_name() {
  constexpr std::string_view given = method_name_override<F>;
  if constexpr (!given.empty()) {
    NameText<given.size()> name;
    name.append(given);
    return name;
  } else {
    static_assert(!std::is_class_v<decltype(F)>,
                  "hawser: a lambda has no name that client and server could share: register a function, or name it by "
                  "specialising hawser::method_name_override");
    constexpr std::string_view raw = argument_text<F>();
    return respell<respelled_bytes(raw.size())>(without_trailing_arguments(raw.substr(raw.starts_with('&') ? 1 : 0)));
  }
}
template <auto F>
inline constexpr auto method_name_text = make_method_name<F>();

}  // namespace detail

// The qualified name, such as "ns::echo" or "Shop::order". GCC and Clang give the same name. Anonymous namespaces are
// spelled "(anonymous)". In these cases method_name_override is needed:
//  - Instantiations of one function template share a name ("add" for add<int> and add<double>), because Clang does not
//    print the arguments.
//  - GCC prints inline namespaces and Clang does not ("ns::v1::f" or "ns::f").
//  - Template arguments of a class (Store<K>::get): fundamental types and standard containers of them agree. GCC may
//    omit the namespace of other types, and Clang adds a suffix to unsigned values.
template <auto function>
inline constexpr std::string_view method_name = detail::method_name_text<function>.view();

// Identifies the method on the wire: 32-bit FNV-1a of method_name.
template <auto function>
inline constexpr std::uint32_t method_id = codec::fnv1a32(method_name<function>);

namespace detail {

// The type of the value that a handler's result carries: T of Task<T> and of Result<T>, in either order of wrapping.
template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<Task<T>> : Unwrapped<T> {};
template <class T>
struct Unwrapped<std::expected<T, Error>> : Unwrapped<T> {};

template <class... T>
struct Parameters {
  static constexpr bool has_context = false;
  using args_tuple = std::tuple<std::remove_cvref_t<T>...>;
  using parameters = std::tuple<T...>;
};
template <class... T>
struct Parameters<Context&, T...> : Parameters<T...> {
  static constexpr bool has_context = true;
};

template <class Object, class Return, class... T>
struct FunctionFacts : Parameters<T...> {
  using class_type = Object;   // void unless it is a member function.
  using return_type = Return;  // As declared.
  // Type of the value that the reply carries; may be void.
  using result = std::remove_cvref_t<typename Unwrapped<Return>::type>;
  static constexpr bool is_member = !std::is_void_v<Object>;
  static constexpr bool is_function = true;
  static constexpr std::size_t arity = std::tuple_size_v<typename Parameters<T...>::args_tuple>;
};

// For everything that is not a function: the users of these facts report it.
template <class F>
struct FactsOf : FunctionFacts<void, void> {
  static constexpr bool is_function = false;
};
template <class R, class... A>
struct FactsOf<R (*)(A...)> : FunctionFacts<void, R, A...> {};
template <class R, class... A>
struct FactsOf<R (*)(A...) noexcept> : FunctionFacts<void, R, A...> {};
template <class R, class C, class... A>
struct FactsOf<R (C::*)(A...)> : FunctionFacts<C, R, A...> {};
template <class R, class C, class... A>
struct FactsOf<R (C::*)(A...) noexcept> : FunctionFacts<C, R, A...> {};
template <class R, class C, class... A>
struct FactsOf<R (C::*)(A...) const> : FunctionFacts<C, R, A...> {};
template <class R, class C, class... A>
struct FactsOf<R (C::*)(A...) const noexcept> : FunctionFacts<C, R, A...> {};
// A lambda without captures counts as a free function.
template <class F>
  requires std::is_class_v<F> && requires { +std::declval<F>(); }
struct FactsOf<F> : FactsOf<decltype(+std::declval<F>())> {};

}  // namespace detail

// The types of a function, member function or lambda without captures:
//   return_type  the declared type
//   result       the type of the value that the reply carries: return_type without Task<> and Result<>; may be void
//   class_type   the class of a member function, else void
//   is_member    true for a member function
//   args_tuple   std::tuple of the parameters that a request carries, without const, references and a leading Context&
//   parameters   the same parameters as declared
//   has_context  true if the first parameter is Context&
//   arity        number of elements of args_tuple
template <auto function>
using function_traits = detail::FactsOf<std::remove_const_t<decltype(function)>>;

namespace detail {

template <auto F>
consteval std::uint32_t make_signature() {
  using Traits = function_traits<F>;
  codec::Fnv1a64 hash;
  hash.add('F');
  codec::DescribeAll<typename Traits::args_tuple>::run(hash);
  hash.add('>');
  if constexpr (std::is_void_v<typename Traits::result>) {
    hash.add('v');
  } else {
    codec::describe<typename Traits::result>(hash);
  }
  return hash.folded();
}

}  // namespace detail

// Hash of the types that calls carry: "F" arguments ">" result ("v" if void), each described by codec::describe. A
// client may call a function through another one with the same signature.
template <auto function>
inline constexpr std::uint32_t signature = detail::make_signature<function>();

}  // namespace hawser
