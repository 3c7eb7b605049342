#include "transport/ucx/protocol/payload_arrivals.h"

#include <gtest/gtest.h>

namespace hawser::transport::ucx {
namespace {

UcxTarget::ActiveMessage payload(std::uint32_t index) {
  return {.header = {.index = index, .kind = UcxHeader::Kind::payload}, .size = 100U + index};
}

TEST(UcxPayloadArrivals, APayloadMayArriveBeforeItsEntryOrAfterIt) {
  PayloadArrivals payloads;
  EXPECT_TRUE(payloads.add(payload(1)));
  EXPECT_EQ(payloads.announce(), 0U);
  EXPECT_EQ(payloads.find(0), nullptr);
  EXPECT_EQ(payloads.announce(), 1U);
  ASSERT_NE(payloads.find(1), nullptr);
  EXPECT_EQ(payloads.find(1)->size, 101U);
  EXPECT_TRUE(payloads.add(payload(0)));
  EXPECT_EQ(payloads.remove(0).size, 100U);
  EXPECT_EQ(payloads.find(0), nullptr);
}

TEST(UcxPayloadArrivals, APayloadOfADeliveredMessageIsRefused) {
  PayloadArrivals payloads;
  payloads.announce();
  payloads.announce();
  EXPECT_EQ(payloads.undelivered(), 2U);
  payloads.deliver();
  EXPECT_EQ(payloads.undelivered(), 1U);
  EXPECT_FALSE(payloads.add(payload(0)));
  EXPECT_TRUE(payloads.add(payload(1)));
  EXPECT_FALSE(payloads.add(payload(1))) << "it waits already";
}

TEST(UcxPayloadArrivals, ALimitedNumberWaits) {
  PayloadArrivals payloads;
  for (std::uint32_t index = 0; index < PayloadArrivals::waiting_max; ++index) {
    ASSERT_TRUE(payloads.add(payload(index)));
  }
  EXPECT_FALSE(payloads.add(payload(PayloadArrivals::waiting_max)));
  static_cast<void>(payloads.remove(3));
  EXPECT_TRUE(payloads.add(payload(PayloadArrivals::waiting_max)));
  std::size_t released = 0;
  payloads.clear([&](UcxTarget::ActiveMessage&) { ++released; });
  EXPECT_EQ(released, PayloadArrivals::waiting_max);
  EXPECT_EQ(payloads.find(5), nullptr);
}

}  // namespace
}  // namespace hawser::transport::ucx
