#include "block/nbd/connection_place.h"

#include <gtest/gtest.h>

#include <vector>

namespace hawser::block::nbd {
namespace {

using std::chrono::seconds;

constexpr PlaceRules place_rules{.kept_per_client = 2, .idle_min = seconds(5)};

TEST(NbdConnectionPlace, TheClientWithMostConnectionsLosesTheOneThatIsIdleTheLongest) {
  const std::vector<ConnectionPlace> places = {{"a", seconds(90)}, {"b", seconds(6)},  {"b", seconds(8)},
                                               {"b", seconds(7)},  {"c", seconds(50)}, {"c", seconds(60)}};
  EXPECT_EQ(place_to_free(places, place_rules), 2U);
}

TEST(NbdConnectionPlace, UsedConnectionsAndThoseOfSmallClientsStay) {
  EXPECT_EQ(place_to_free({}, place_rules), std::nullopt);
  const std::vector<ConnectionPlace> few = {{"a", seconds(90)}, {"a", seconds(90)}, {"b", seconds(90)}};
  EXPECT_EQ(place_to_free(few, place_rules), std::nullopt);
  const std::vector<ConnectionPlace> used = {{"a", seconds(1)}, {"a", seconds(2)}, {"a", seconds(4)}};
  EXPECT_EQ(place_to_free(used, place_rules), std::nullopt);
}

// The largest client uses all of its connections.
TEST(NbdConnectionPlace, AnotherLargeClientLosesOne) {
  const std::vector<ConnectionPlace> places = {{"a", seconds(0)}, {"a", seconds(0)}, {"a", seconds(0)},
                                               {"a", seconds(0)}, {"b", seconds(6)}, {"b", seconds(9)},
                                               {"b", seconds(0)}};
  EXPECT_EQ(place_to_free(places, place_rules), 5U);
}

}  // namespace
}  // namespace hawser::block::nbd
