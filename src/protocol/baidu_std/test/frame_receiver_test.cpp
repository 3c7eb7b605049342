#include "protocol/baidu_std/frame_receiver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "protocol/baidu_std/test/vectors.h"

namespace hawser::protocol::baidu_std {
namespace {

using vectors::hex;

// Acts as the session: bytes arrive in parts, those that are not taken stay in front.
class Feeder {
 public:
  explicit Feeder(std::size_t frame_bytes_max, detail::ReceiveAccount* account = nullptr)
      : receiver(frame_bytes_max, account), block_(Block::allocate(64)) {}
  ~Feeder() { block_->release(); }

  // Returns false if the bytes are refused.
  bool feed(Bytes bytes) {
    while (!bytes.empty()) {
      const MutableBytes direct = held_.empty() ? receiver.direct_space() : MutableBytes();
      ReceivedFrame frame;
      if (!direct.empty()) {
        const std::size_t part = std::min(direct.size(), bytes.size());
        std::memcpy(direct.data(), bytes.data(), part);
        bytes = bytes.subspan(part);
        if (receiver.direct_received(part, frame)) keep(frame);
        continue;
      }
      held_.insert(held_.end(), bytes.begin(), bytes.end());
      bytes = {};
      for (bool more = true; more && !held_.empty();) {
        bool complete = false;
        // A separate block, so that a read beyond it is detected.
        const std::vector<std::byte> shown = held_;
        const Result<std::size_t> taken = receiver.take(shown, *block_, frame, complete);
        if (!taken) return false;
        if (complete) keep(frame);
        held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(*taken));
        more = *taken != 0;
        EXPECT_LE(held_.size(), more ? held_.size() : FrameReceiver::short_frame_bytes_max);
      }
    }
    return true;
  }

  FrameReceiver receiver;
  std::vector<std::string> frames;  // Kind, meta and data of each.

 private:
  void keep(const ReceivedFrame& frame) {
    frames.push_back((frame.kind == BaiduStdFrameKind::rpc ? "R" : "S") + std::string(as_text(frame.meta)) + "|" +
                     (frame.discarded ? "discarded" : std::string(as_text(frame.data))));
  }
  std::vector<std::byte> held_;
  Block* block_;
};

std::vector<std::byte> frame_of(BaiduStdFrameKind kind, std::size_t meta, std::size_t data,
                                std::string* text = nullptr) {
  std::vector<std::byte> frame(FrameHeader::bytes + meta + data, std::byte{'m'});
  write_header(frame.data(), {kind, static_cast<std::uint32_t>(meta + data), static_cast<std::uint32_t>(meta)});
  for (std::size_t i = 0; i < data; ++i) frame[FrameHeader::bytes + meta + i] = static_cast<std::byte>('a' + i % 23);
  if (text != nullptr) {
    const std::string_view all = as_text(frame);
    *text = (kind == BaiduStdFrameKind::rpc ? "R" : "S") + std::string(all.substr(FrameHeader::bytes, meta)) + "|" +
            std::string(all.substr(FrameHeader::bytes + meta));
  }
  return frame;
}

TEST(BaiduStdReceiver, FramesCutAtEveryPosition) {
  std::vector<std::byte> bytes = hex(vectors::request);
  const std::vector<std::byte> second = hex(vectors::stream_data);
  bytes.insert(bytes.end(), second.begin(), second.end());
  Feeder whole(1 << 20);
  ASSERT_TRUE(whole.feed(bytes));
  ASSERT_EQ(whole.frames.size(), 2U);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    Feeder parts(1 << 20);
    ASSERT_TRUE(parts.feed(Bytes(bytes).first(cut)));
    EXPECT_EQ(parts.receiver.receiving(), cut % bytes.size() != 0 && cut != hex(vectors::request).size()) << cut;
    ASSERT_TRUE(parts.feed(Bytes(bytes).subspan(cut)));
    EXPECT_EQ(parts.frames, whole.frames) << cut;
    EXPECT_FALSE(parts.receiver.receiving());
  }
  Feeder single(1 << 20);
  for (const std::byte one : bytes) ASSERT_TRUE(single.feed({&one, 1}));
  EXPECT_EQ(single.frames, whole.frames);
}

TEST(BaiduStdReceiver, FramesOfAnyLengthInPartsOfAnyLength) {
  Random random(7);
  constexpr std::size_t border = FrameReceiver::short_frame_bytes_max - FrameHeader::bytes;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte> bytes;
    std::vector<std::string> expected;
    for (int i = 0; i < 8; ++i) {
      const std::size_t meta = random.chance(0.1) ? border : random.next() % 300;
      const std::size_t data = random.chance(0.5)   ? random.next() % 100
                               : random.chance(0.5) ? border - std::min(border, meta) + random.next() % 3
                                                    : random.next() % 200'000;
      const auto frame = frame_of(random.chance(0.5) ? BaiduStdFrameKind::rpc : BaiduStdFrameKind::stream, meta, data,
                                  &expected.emplace_back());
      bytes.insert(bytes.end(), frame.begin(), frame.end());
    }
    Feeder feeder(1 << 20);
    for (Bytes rest = bytes; !rest.empty();) {
      const std::size_t part = std::min<std::size_t>(rest.size(), 1 + random.next() % 70'000);
      ASSERT_TRUE(feeder.feed(rest.first(part)));
      rest = rest.subspan(part);
    }
    ASSERT_TRUE(feeder.frames == expected) << round;
    EXPECT_FALSE(feeder.receiver.receiving());
  }
}

TEST(BaiduStdReceiver, LongFramesAreChargedAsTheyArriveAndDiscardedBeyondTheBudget) {
  constexpr std::size_t megabyte = std::size_t{1} << 20;
  detail::ReceiveBudget budget(megabyte, megabyte / 2);
  detail::ReceiveAccount account(&budget);
  Feeder feeder(8 * megabyte, &account);
  const std::vector<std::byte> large = frame_of(BaiduStdFrameKind::rpc, 5, 2 * megabyte);
  ASSERT_TRUE(feeder.feed(Bytes(large).first(50'000)));
  EXPECT_GT(budget.used(), 0U);
  EXPECT_LE(budget.used(), 512U * 1024);  // Nothing is charged for the announcement alone.
  ASSERT_TRUE(feeder.feed(Bytes(large).subspan(50'000)));
  ASSERT_EQ(feeder.frames.size(), 1U);
  EXPECT_EQ(feeder.frames[0], "Rmmmmm|discarded");
  EXPECT_EQ(budget.used(), 0U);
  std::string text;
  ASSERT_TRUE(feeder.feed(frame_of(BaiduStdFrameKind::rpc, 5, 100'000, &text)));
  ASSERT_EQ(feeder.frames.size(), 2U);
  EXPECT_TRUE(feeder.frames[1] == text);
  EXPECT_EQ(budget.used(), 0U);
}

TEST(BaiduStdReceiver, FramesBeyondTheLimitsAreRefused) {
  Feeder feeder(1000);
  EXPECT_FALSE(feeder.feed(frame_of(BaiduStdFrameKind::rpc, 1, 1000)));
  Feeder meta(1 << 20);
  EXPECT_FALSE(meta.feed(frame_of(BaiduStdFrameKind::rpc, FrameReceiver::short_frame_bytes_max, 0)));
  Feeder foreign(1 << 20);
  EXPECT_FALSE(foreign.feed(as_bytes("GET / HTTP/1.1")));
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
