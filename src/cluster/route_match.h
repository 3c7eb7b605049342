#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"
#include "hawser/metadata.h"
#include "hawser/naming_routes.h"

// Which calls a route matches.
namespace hawser::cluster {

inline constexpr std::uint32_t all_calls_per_million = 1'000'000;

// The path of a method on the wire of gRPC: a function "shop::cart::add" has the service "shop::cart".
class MethodPath {
 public:
  MethodPath() noexcept = default;
  MethodPath(const MethodPath&) = delete;
  MethodPath& operator=(const MethodPath&) = delete;

  void set(std::string_view method);
  std::string_view text() const noexcept { return text_; }
  // With letters of ASCII in lower case. Valid until the next call of set().
  std::string_view lower_text();
  // Whether the path is that of the route, or begins with it.
  bool matches(const NamingRoutes::Match& match);

 private:
  std::array<char, 256> short_;  // Most paths need no allocation.
  std::string long_;
  std::string_view text_;
  std::string lower_;
};

bool matches_each_path(const NamingRoutes::Match& match) noexcept;

// True if a call that has the path may not match nevertheless.
bool has_conditions(const NamingRoutes::Match& match) noexcept;

// The value of metadata for conditions, as in gRPC: binary metadata has none, and the type of the content is known.
// Several values count as one, which is put into `joined`.
std::optional<std::string_view> metadata_value(const Metadata& metadata, std::string_view name, std::string& joined);

// Whether the conditions hold. Those by chance are asked last.
bool conditions_hold(const NamingRoutes::Match& match, const Metadata& metadata, Random& random);

}  // namespace hawser::cluster
