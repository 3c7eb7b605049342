#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/naming_policy.h"
#include "hawser/service_config.h"

namespace hawser {

class NamingSource;

// A name may have several clusters, each with a list and a policy of its own. The first route that matches a call
// chooses its cluster, by chance if the route has several. All attempts of the call are made there. Routes that
// contradict what is said here are refused, and those before them stay.
struct NamingRoutes {
  static constexpr std::size_t clusters_max = 64;

  // A condition on a value of the metadata of a call. Several values of a name count as one, with commas between them.
  struct Header {
    enum class Kind : std::uint8_t { exact, prefix, suffix, contains, range, present, absent };
    std::string name = {};  // In lower case.
    Kind kind = Kind::present;
    std::string text = {};   // For texts; in lower case with `any_case`.
    std::int64_t first = 0;  // For `range`: a number from `first` to `end` - 1.
    std::int64_t end = 0;
    bool any_case = false;
    bool inverted = false;  // A missing value matches nothing nevertheless.
    friend bool operator==(const Header&, const Header&) = default;
  };
  struct Match {
    std::string path = {};  // "/service/method", or the begin of it. In lower case with `any_case`.
    bool whole = false;     // The path is the whole one.
    bool any_case = false;
    std::vector<Header> headers = {};             // All of them must hold.
    std::uint32_t parts_per_million = 1'000'000;  // This part of the calls, by chance.
    friend bool operator==(const Match&, const Match&) = default;
  };
  struct Target {
    std::size_t cluster = 0;  // Index in `clusters`.
    std::uint32_t weight = 1;
    friend bool operator==(const Target&, const Target&) = default;
  };
  struct Route {
    Match match = {};
    std::vector<Target> targets = {};  // At least one; the sum of the weights is above 0 and below 2^32.
    MethodConfig config = {};          // Counts if the client and the name have no service config.
    // In place of NamingPolicy::keys, if that has a balancing.
    std::vector<NamingPolicy::Key> keys = {};
  };

  std::vector<std::string> clusters = {};  // The names, each once.
  std::size_t main = 0;                    // Index of the cluster whose list and policy are those of the name.
  std::vector<Route> routes = {};
  // Makes the source of the list and the policy of one of the other clusters. It may outlive the source of the name.
  std::function<std::unique_ptr<NamingSource>(std::string_view cluster)> open = {};
};

}  // namespace hawser
