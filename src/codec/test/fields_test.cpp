#include "hawser/codec/fields.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace hawser::codec {
namespace {

struct Empty {};
struct One {
  int number;
};
// Types with constructors that accept nearly any type. They must not make field counting ambiguous.
struct Greedy {
  std::optional<std::optional<int>> optional;
  std::variant<std::monostate, int, std::string> variant;
  std::span<const int> span;
  std::string_view text;
  std::pair<std::string, std::string_view> pair;
  std::tuple<std::optional<int>, std::string> tuple;
  std::tuple<std::string> single;
  std::array<std::string, 3> array;
  std::chrono::nanoseconds time;
  std::unordered_map<std::string, std::vector<int>> map;
};
struct MoveOnly {
  std::vector<std::unique_ptr<int>> pointers;
  std::unique_ptr<MoveOnly> next;
  std::optional<std::unique_ptr<int>> maybe;
  std::map<int, std::unique_ptr<int>> map;
  std::variant<std::unique_ptr<int>, std::string> variant;
  std::unordered_set<int> set;
};
struct Nested {
  Empty empty;
  One one;
  Greedy greedy;
  std::array<One, 2> array;
};
// Default member initialisers with nested braces.
struct WithDefaults {
  int number = 1;
  std::vector<std::vector<std::string>> texts{{"a", "b"}, {}};
  std::map<std::string, std::optional<int>> map{{"a", 1}, {"b", std::nullopt}};
};
struct Wide {
  std::uint8_t a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22;
  std::uint8_t b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16, b17, b18, b19, b20, b21, b22;
  std::uint8_t c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18, c19, c20;
};

static_assert(field_count<Empty> == 0 && field_count<One> == 1 && field_count<Nested> == 4);
static_assert(field_count<Greedy> == 10 && field_count<MoveOnly> == 6 && field_count<WithDefaults> == 3);
static_assert(field_count<Wide> == field_count_max);
static_assert(std::is_same_v<field_types<Nested>, std::tuple<Empty, One, Greedy, std::array<One, 2>>>);

struct WithArray {
  int number;
  char text[3];
};
struct Derived : One {
  int more;
};
struct DerivedFromEmpty : Empty {
  int more;
};
struct WithReference {
  int& number;
};
struct TooWide {
  Wide wide;
  std::array<int, 2> array;
  char a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, a21, a22, a23, a24;
  char b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16, b17, b18, b19, b20, b21, b22, b23, b24;
  char c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15;
};
static_assert(find_field_defect<WithArray>() == FieldDefect::c_array);
static_assert(find_field_defect<Derived>() == FieldDefect::base);
static_assert(find_field_defect<DerivedFromEmpty>() == FieldDefect::base);
static_assert(find_field_defect<WithReference>() == FieldDefect::not_default);
static_assert(find_field_defect<TooWide>() == FieldDefect::too_many);
static_assert(find_field_defect<Nested>() == FieldDefect::none);

struct WithBitField {
  int whole;
  unsigned part : 3;
};
struct WithFullBitField {
  unsigned all : 32;
};
static_assert(find_field_defect<WithBitField>() == FieldDefect::bit_field);
static_assert(find_field_defect<WithFullBitField>() == FieldDefect::bit_field);

TEST(Fields, AreReferencesInOrder) {
  Nested nested{};
  const auto fields = fields_of(nested);
  std::get<1>(fields).number = 5;
  EXPECT_EQ(nested.one.number, 5);
  Wide wide{};
  std::get<63>(fields_of(wide)) = 7;
  EXPECT_EQ(wide.c20, 7);
  const WithDefaults defaults;
  EXPECT_EQ(std::get<1>(fields_of(defaults)).size(), 2U);
}

}  // namespace
}  // namespace hawser::codec
