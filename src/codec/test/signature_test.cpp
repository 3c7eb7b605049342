#include "hawser/codec/signature.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "hawser/codec.h"

namespace hawser::codec {
namespace {

consteval std::uint32_t hash_of(std::string_view description) {
  Fnv1a64 hash;
  hash.add(description);
  return hash.folded();
}

enum class Color : std::uint16_t { red };
struct Point {
  std::int32_t x, y;
};
struct SamePoint {
  std::int32_t a, b;
};
struct Node {
  int number;
  std::vector<Node> children;
  std::unique_ptr<Node> next;
};
struct Left;
struct Right {
  std::vector<Left> lefts;
};
struct Left {
  std::vector<Right> rights;
  bool flag;
};
struct Evolving {
  static constexpr std::size_t hawser_base_fields = 1;
  int number;
  std::string text;
};

// The descriptions are part of the wire format.
static_assert(type_signature<bool> == hash_of("b"));
static_assert(type_signature<std::int64_t> == hash_of("i8") && type_signature<long long> == hash_of("i8"));
static_assert(type_signature<std::byte> == hash_of("u1") && type_signature<Color> == hash_of("u2"));
static_assert(type_signature<char> == hash_of("c1") && type_signature<char32_t> == hash_of("c4"));
static_assert(type_signature<float> == hash_of("f4") && type_signature<double> == hash_of("f8"));
static_assert(type_signature<std::string> == hash_of("Sc1"));
static_assert(type_signature<std::vector<std::vector<bool>>> == hash_of("SSb"));
static_assert(type_signature<std::array<std::int32_t, 12>> == hash_of("A12.i4"));
static_assert(type_signature<std::set<int>> == hash_of("Ki4"));
static_assert(type_signature<std::map<int, std::string>> == hash_of("Mi4Sc1"));
static_assert(type_signature<std::optional<int>> == hash_of("Oi4"));
static_assert(type_signature<std::variant<std::monostate, int>> == hash_of("V2.()i4"));
static_assert(type_signature<std::chrono::milliseconds> == hash_of("D1.1000.i8"));
static_assert(type_signature<std::tuple<int, bool>> == hash_of("(i4b)"));
static_assert(type_signature<Point> == hash_of("(i4i4)"));
static_assert(type_signature<Node> == hash_of("(i4SR0.OR0.)"));
static_assert(type_signature<Left> == hash_of("(S(SR1.)b)"));
static_assert(type_signature<Evolving> == hash_of("Ei4)"));

// The same hashes as numbers detect a change of the hash function itself.
static_assert(type_signature<bool> == 0x29622ee9 && type_signature<Node> == 0xcf21d140);

static_assert(type_signature<std::string> == type_signature<std::string_view>);
static_assert(type_signature<std::vector<int>> == type_signature<std::span<const int>>);
static_assert(type_signature<std::vector<bool>> == type_signature<std::deque<bool>>);
static_assert(type_signature<std::map<int, int>> == type_signature<std::unordered_map<int, int>>);
static_assert(type_signature<std::set<int>> == type_signature<std::unordered_set<int>>);
static_assert(type_signature<Point> == type_signature<SamePoint>);
static_assert(type_signature<Point> == type_signature<std::pair<int, int>>);
static_assert(type_signature<std::optional<int>> == type_signature<std::unique_ptr<int>>);
static_assert(type_signature<std::chrono::seconds> != type_signature<std::chrono::milliseconds>);
static_assert(type_signature<std::int32_t> != type_signature<std::uint32_t>);

TEST(Signature, HashesAreFnv1a) {
  // Reference values: 64 bits of FNV-1a are 0xcbf29ce484222325 for "" and 0xaf63dc4c8601ec8c for "a".
  EXPECT_EQ(hash_of(""), 0x84222325U ^ 0xcbf29ce4U);
  EXPECT_EQ(hash_of("a"), 0x8601ec8cU ^ 0xaf63dc4cU);
}

}  // namespace
}  // namespace hawser::codec
