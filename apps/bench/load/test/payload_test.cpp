#include "bench/load/payload.h"

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <vector>

namespace hawser::bench {
namespace {

TEST(Payload, DiffersFromCallToCall) {
  const Payload payload(8);
  std::set<std::string_view> seen;
  for (std::uint64_t call = 0; call < Payload::windows; ++call) seen.insert(payload.of(call));
  EXPECT_EQ(seen.size(), Payload::windows);
}

TEST(Payload, HasTheSizeAskedFor) {
  for (const std::size_t size : {1u, 63u, 64u, 65u, 100'000u}) {
    EXPECT_EQ(Payload(size).of(Payload::windows - 1).size(), size);
  }
}

TEST(Payload, IsTheSameInMemoryOfTheCallers) {
  std::vector<std::byte> memory(Payload::memory_bytes(1000) + 1, std::byte{0x5a});
  const Payload loaned(1000, std::span(memory).first(memory.size() - 1));
  const Payload own(1000);
  for (const std::uint64_t call : {0u, 1u, 1023u}) EXPECT_EQ(loaned.of(call), own.of(call));
  EXPECT_EQ(static_cast<const void*>(loaned.of(0).data()), memory.data());
  EXPECT_EQ(memory.back(), std::byte{0x5a}) << "beyond its end";
}

TEST(Payload, NoticesAnotherCallsReply) {
  const Payload payload(4096);
  EXPECT_TRUE(same(payload.of(1), payload.of(1), Check::ends));
  EXPECT_TRUE(same(payload.of(1), payload.of(1), Check::all));
  EXPECT_FALSE(same(payload.of(1), payload.of(2), Check::ends));
  EXPECT_FALSE(same(payload.of(1), payload.of(2), Check::all));
}

TEST(Payload, NoticesAnotherLength) {
  const Payload payload(4096);
  EXPECT_FALSE(same(payload.of(1), payload.of(1).substr(0, 4095), Check::ends));
  EXPECT_FALSE(same(payload.of(1), {}, Check::ends));
}

TEST(Payload, NoticesAByteInTheMiddleOnlyWhenAllIsCompared) {
  const Payload payload(4096);
  std::string reply(payload.of(5));
  reply[2000] = static_cast<char>(reply[2000] ^ 1);
  EXPECT_TRUE(same(payload.of(5), reply, Check::ends));
  EXPECT_FALSE(same(payload.of(5), reply, Check::all));
}

}  // namespace
}  // namespace hawser::bench
