// The memory for received bytes of a client of NBD.
#include "block/nbd/nbd_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

namespace hawser::block::nbd {
namespace {

// A client whose n-th byte is known.
class CountedBytes {
 public:
  static std::byte at(std::uint64_t place) { return static_cast<std::byte>(place * 0x9e3779b97f4a7c15 >> 56); }

  // As a socket that has at least so many bytes.
  void receive(NbdInput& buffer, std::size_t bytes, std::size_t missing = 0) {
    MutableBytes room = buffer.room(missing);
    ASSERT_FALSE(room.empty());
    room = room.first(std::min(bytes, room.size()));
    std::ranges::generate(room, [&] { return at(sent_++); });
    buffer.received(room.size());
  }
  std::uint64_t sent() const { return sent_; }

 private:
  std::uint64_t sent_ = 0;
};

TEST(NbdInputMemory, AShortRestIsMovedBehindUsedBytes) {
  NbdInput buffer;
  CountedBytes client;
  const std::byte* const front = buffer.unused().data();
  client.receive(buffer, 128 * 1024);
  buffer.use(128 * 1024 - 100);
  EXPECT_EQ(buffer.room(4000).size(), NbdInput::receive_bytes_max);
  EXPECT_EQ(buffer.unused().data(), front);
  EXPECT_EQ(buffer.unused().size(), 100U);
  EXPECT_EQ(buffer.unused()[0], CountedBytes::at(128 * 1024 - 100));
}

// A client writes 64 KiB again and again, and its socket is always full. No request may be copied within the buffer.
TEST(NbdInputMemory, LongRequestsAreNotMoved) {
  constexpr std::size_t request_bytes = 28 + 64 * 1024;
  NbdInput buffer;
  CountedBytes client;
  std::size_t receives = 0;
  for (std::uint64_t request = 0; request < 200; ++request) {
    while (buffer.unused().size() < request_bytes) {
      const std::byte* const before = buffer.unused().data();
      const std::size_t rest = buffer.unused().size();
      client.receive(buffer, NbdInput::receive_bytes_max, request_bytes - rest);
      if (rest > NbdInput::moved_bytes_max) {
        ASSERT_EQ(buffer.unused().data(), before) << "request " << request;
      }
      ++receives;
    }
    ASSERT_EQ(buffer.unused()[0], CountedBytes::at(request * request_bytes));
    ASSERT_EQ(buffer.unused()[request_bytes - 1], CountedBytes::at((request + 1) * request_bytes - 1));
    buffer.use(request_bytes);
  }
  EXPECT_LE(receives, 200U);
}

TEST(NbdInputMemory, RequestsOfAnySizeAreInOnePiece) {
  std::mt19937 random(53);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  NbdInput buffer;
  CountedBytes client;
  std::uint64_t place = 0;
  for (int request = 0; request < 300; ++request) {
    const std::size_t bytes = 1 + below(below(2) == 0 ? 200 : NbdInput::contiguous_bytes_max);
    while (buffer.unused().size() < bytes) {
      const std::size_t missing = below(4) == 0 ? 0 : bytes - buffer.unused().size();
      client.receive(buffer, 1 + below(below(2) == 0 ? 5000 : 300'000), missing);
    }
    ASSERT_EQ(buffer.unused()[0], CountedBytes::at(place));
    ASSERT_EQ(buffer.unused()[bytes - 1], CountedBytes::at(place + bytes - 1));
    buffer.use(bytes);
    place += bytes;
  }
  EXPECT_EQ(buffer.received_bytes(), client.sent());
  EXPECT_EQ(buffer.received_bytes(), place + buffer.unused().size());
}

}  // namespace
}  // namespace hawser::block::nbd
