#include "hawser/codec/views.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "codec/test/codec_testing.h"

namespace hawser::codec {
namespace {

struct Plain {
  std::string text;
  std::vector<Plain> more;
};
struct Showing {
  int number;
  std::optional<std::string_view> text;
};

static_assert(std::is_same_v<Owned<int>, int> && std::is_same_v<Owned<Plain>, Plain>);
static_assert(std::is_same_v<Owned<std::string_view>, std::string>);
static_assert(std::is_same_v<Owned<std::span<const double>>, std::vector<double>>);
static_assert(std::is_same_v<Owned<std::vector<std::string_view>>, std::vector<std::string>>);
static_assert(std::is_same_v<Owned<std::optional<std::string_view>>, std::optional<std::string>>);
static_assert(std::is_same_v<Owned<std::variant<int, std::string_view>>, std::variant<int, std::string>>);
static_assert(std::is_same_v<Owned<std::tuple<int, std::pair<std::string_view, bool>>>,
                             std::tuple<int, std::pair<std::string, bool>>>);
static_assert(std::is_same_v<Owned<std::array<std::string_view, 2>>, std::array<std::string, 2>>);

static_assert(!contains_view<int> && !contains_view<Plain> && !contains_view<std::map<int, std::string>>);
static_assert(contains_view<std::string_view> && contains_view<Showing>);
static_assert(contains_view<std::vector<std::unique_ptr<Showing>>>);
static_assert(contains_view<std::map<std::string_view, int>> && contains_view<std::variant<int, Showing>>);
static_assert(!contains_view<Owned<std::vector<std::pair<int, std::string_view>>>>);

TEST(Owned, OutlivesTheMessage) {
  using Shown = std::vector<std::optional<std::string_view>>;
  Owned<Shown> owned;
  {
    const Message message = encode_message(Shown{"a", std::nullopt, "b"});
    owned = decode_message<Owned<Shown>>(message);
  }
  EXPECT_EQ(owned, (std::vector<std::optional<std::string>>{"a", std::nullopt, "b"}));
}

}  // namespace
}  // namespace hawser::codec
