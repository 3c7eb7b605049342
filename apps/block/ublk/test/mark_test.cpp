#include "block/ublk/mark.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser::block::ublk {
namespace {

UblkMarkPart difference_to(const char* volume, const char* medium, const char* client) {
  return difference_of(mark_of("v@1", "m", "c"), mark_of(volume, medium, client));
}

TEST(UblkMark, NamesTheFirstPartThatDiffers) {
  EXPECT_EQ(difference_to("v@1", "m", "c"), UblkMarkPart::none);
  EXPECT_EQ(difference_to("v@2", "n", "d"), UblkMarkPart::volume);
  EXPECT_EQ(difference_to("v@1", "n", "d"), UblkMarkPart::medium);
  EXPECT_EQ(difference_to("v@1", "m", "d"), UblkMarkPart::client);
  EXPECT_EQ(difference_to("v@1", "m", ""), UblkMarkPart::client);
}

// Ids and names that resemble each other.
TEST(UblkMark, DiffersByEachPart) {
  for (int number = 0; number < 256; ++number) {
    const std::string text = std::to_string(number);
    EXPECT_EQ(difference_of(mark_of("v@1", "m", "c"), mark_of("v@1" + text, "m", "c")), UblkMarkPart::volume);
    EXPECT_EQ(difference_of(mark_of("v@1", "m", "c"), mark_of("v@1", "m" + text, "c")), UblkMarkPart::medium);
    EXPECT_EQ(difference_of(mark_of("v@1", "m", "c"), mark_of("v@1", "m", "c" + text)), UblkMarkPart::client);
  }
}

}  // namespace
}  // namespace hawser::block::ublk
