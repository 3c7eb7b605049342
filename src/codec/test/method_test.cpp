#include "hawser/method.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "hawser/codec.h"
#include "hawser/task.h"

namespace {
int hidden(int number) { return number; }
}  // namespace

namespace shop {
std::string_view echo(std::string_view text) { return text; }
void stop() noexcept {}
template <class T>
T add(T a, T b) {
  return a + b;
}
template <class T, int offset>
T shift(T a) {
  return a + offset;
}
namespace {
struct Hidden {
  int member(int number) { return number; }
};
}  // namespace

struct Shop {
  int order(const std::string&, int count) { return count; }
  int stock(int count) const noexcept { return count; }
  static int open(int hour) { return hour; }
  struct Counter {
    int next() { return 1; }
  };
  int operator()(int number) { return number; }
  bool operator<(int number) const { return number > 0; }
};
template <class Key, class Value>
struct Store {
  Value get(Key) { return {}; }
  static Value peek(Key) { return {}; }
};
}  // namespace shop

namespace hawser {

template <>
inline constexpr std::string_view method_name_override<&shop::add<double>> = "shop::add<double>";

// Declared only for their types.
Task<Result<std::string>> greet(Context&, const std::string& name, std::span<const int> numbers);
std::string greet_plainly(std::string_view name, std::vector<int> numbers);
Result<void> check(int&& number);

namespace {

// Every compiler must compute the same values: each of them builds this file.
static_assert(method_name<shop::echo> == "shop::echo");
static_assert(method_name<&shop::echo> == "shop::echo");
static_assert(method_name<hidden> == "(anonymous)::hidden");
static_assert(method_name<&shop::Hidden::member> == "shop::(anonymous)::Hidden::member");
static_assert(method_name<shop::stop> == "shop::stop");
static_assert(method_name<&shop::Shop::order> == "shop::Shop::order");
static_assert(method_name<&shop::Shop::stock> == "shop::Shop::stock");
static_assert(method_name<&shop::Shop::open> == "shop::Shop::open");
static_assert(method_name<&shop::Shop::Counter::next> == "shop::Shop::Counter::next");
static_assert(method_name<&shop::Shop::operator()> == "shop::Shop::operator()");
static_assert(method_name < &shop::Shop::operator<> == "shop::Shop::operator<");
static_assert(method_name<shop::add<int>> == "shop::add");
static_assert(method_name<shop::add<std::uint64_t>> == "shop::add");
static_assert(method_name<shop::add<double>> == "shop::add<double>");
static_assert(method_name<shop::shift<int, 5>> == "shop::shift");
static_assert(method_name<&shop::Store<int, double>::get> == "shop::Store<int, double>::get");
static_assert(method_name<&shop::Store<std::uint64_t, std::int16_t>::get> == "shop::Store<unsigned long, short>::get");
static_assert(method_name<&shop::Store<unsigned char, bool>::peek> == "shop::Store<unsigned char, bool>::peek");
static_assert(method_name<&shop::Store<long long, std::uint16_t>::peek> ==
              "shop::Store<long long, unsigned short>::peek");
static_assert(method_name<&shop::Store<std::string, std::vector<std::vector<long>>>::get> ==
              "shop::Store<std::basic_string<char>, std::vector<std::vector<long>>>::get");

static_assert(codec::fnv1a32("") == 0x811c9dc5 && codec::fnv1a32("a") == 0xe40c292c);
static_assert(method_id<shop::echo> == codec::fnv1a32("shop::echo"));

constexpr auto twice = [](int number) { return 2 * number; };

using Greet = function_traits<greet>;
static_assert(Greet::has_context && Greet::arity == 2 && !Greet::is_member);
static_assert(std::is_same_v<Greet::args_tuple, std::tuple<std::string, std::span<const int>>>);
static_assert(std::is_same_v<Greet::parameters, std::tuple<const std::string&, std::span<const int>>>);
static_assert(std::is_same_v<Greet::result, std::string>);
static_assert(std::is_same_v<Greet::return_type, Task<Result<std::string>>>);
using Order = function_traits<&shop::Shop::order>;
static_assert(Order::is_member && !Order::has_context && std::is_same_v<Order::class_type, shop::Shop>);
static_assert(std::is_same_v<Order::args_tuple, std::tuple<std::string, int>>);
static_assert(function_traits<&shop::Shop::stock>::arity == 1);
static_assert(!function_traits<&shop::Shop::open>::is_member);
static_assert(std::is_same_v<function_traits<check>::args_tuple, std::tuple<int>>);
static_assert(std::is_void_v<function_traits<check>::result>);
static_assert(std::is_void_v<function_traits<shop::stop>::result>);
static_assert(std::is_same_v<function_traits<twice>::args_tuple, std::tuple<int>>);

static_assert(signature<greet> == signature<greet_plainly>);
static_assert(signature<shop::add<int>> != signature<shop::add<double>>);
static_assert(signature<shop::stop> != signature<hidden>);
static_assert(signature<hidden> == signature<&shop::Shop::stock>);

// The numbers are part of the wire format and never change.
static_assert(signature<shop::echo> == 0x8bb30be6);
static_assert(signature<shop::stop> == 0x6a036dd0);
static_assert(signature<greet> == 0x8514a940);
static_assert(signature<hidden> == 0xc4748dc9);

TEST(Method, NamesAreTextAtRunTimeToo) {
  EXPECT_EQ(std::string(method_name<shop::echo>), "shop::echo");
  EXPECT_EQ(shop::echo("text"), "text");
  shop::stop();
}

}  // namespace
}  // namespace hawser
