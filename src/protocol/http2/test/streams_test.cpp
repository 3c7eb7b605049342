#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/http2/peer_silence.h"
#include "protocol/http2/ping_limit.h"
#include "protocol/http2/request_queue.h"
#include "protocol/http2/stream.h"
#include "protocol/http2/stream_table.h"

namespace hawser::protocol::http2 {
namespace {

using ::testing::ElementsAre;

TEST(Http2StreamTable, ASlotIsUsedAgainWithAnotherGeneration) {
  StreamTable<Http2Stream> table(2);
  Http2Stream* const first = table.take({});
  Http2Stream* const second = table.take({});
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(table.take({}), nullptr);
  const std::uint32_t call = first->call;
  EXPECT_EQ(table.find(call), first);
  first->open = false;
  EXPECT_EQ(table.find(call), nullptr);
  first->busy = true;
  EXPECT_EQ(table.find(call), first);
  first->busy = false;
  table.put_back(*first);
  EXPECT_EQ(table.used(), 1U);
  EXPECT_EQ(table.take({}), first);
  EXPECT_EQ(first->call, call + 0x10000);
  EXPECT_EQ(table.find(call), nullptr);
  EXPECT_EQ(table.used(), 2U);
}

TEST(Http2StreamTable, GenerationsAreNeverZero) {
  StreamTable<Http2Stream> table(1);
  Http2Stream* const stream = table.take({});
  stream->call = 0xFFFF0000;
  stream->open = false;
  table.put_back(*stream);
  ASSERT_EQ(table.take({}), stream);
  EXPECT_EQ(stream->call, 0x10000U);
}

TEST(Http2RequestQueue, ServesInOrderAndSkipsTheEnded) {
  std::array<Http2Stream, 3> streams;
  for (std::uint32_t i = 0; i < 3; ++i) streams[i].call = 0x10000 + i;
  RequestQueue queue;
  const std::array<RequestQueue::Field, 1> fields = {{{"name", "value"}}};
  for (Http2Stream& stream : streams) queue.add(stream, fields);
  EXPECT_EQ(streams[0].waiting_fields.at(0).second, "value");
  queue.on_closed(streams[0]);
  EXPECT_EQ(&queue.front(), &streams[1]);
  queue.on_submitted(streams[1]);
  EXPECT_EQ(queue.submitted(), 1U);
  EXPECT_EQ(&queue.front(), &streams[2]);
  queue.on_closed(streams[2]);
  EXPECT_TRUE(queue.empty());
  queue.on_closed(streams[1]);
  EXPECT_EQ(queue.submitted(), 0U);
}

TEST(Http2RequestQueue, AStreamThatWaitsAgainHasItsNewPlace) {
  std::array<Http2Stream, 2> streams;
  RequestQueue queue;
  queue.add(streams[0], {});
  queue.add(streams[1], {});
  queue.on_closed(streams[0]);
  streams[0].call += 0x10000;
  queue.add(streams[0], {});
  std::vector<const Http2Stream*> refused;
  queue.empty_into([&](Http2Stream& stream) {
    refused.push_back(&stream);
    queue.on_closed(stream);
  });
  EXPECT_THAT(refused, ElementsAre(&streams[1], &streams[0]));
  EXPECT_TRUE(queue.empty());
}

class CountedOwner final : public SendCompletion {
 public:
  void on_send_complete() noexcept override { ++notified; }
  unsigned notified = 0;
};

std::string take_all(pipe::SendQueue& queue) {
  std::string bytes;
  while (!queue.empty()) {
    ConstBuffer piece;
    queue.peek({&piece, 1});
    bytes.append(reinterpret_cast<const char*>(piece.data), piece.size);
    queue.consume(piece.size);
  }
  return bytes;
}

TEST(Http2StreamOutput, BytesLeaveInOrderWithTheirCredit) {
  pipe::SendQueue queue;
  StreamOutput out;
  CountedOwner owner;
  const std::string loan = "loan";
  const std::array<ConstBuffer, 1> pieces = {{{reinterpret_cast<const std::byte*>(loan.data()), loan.size()}}};
  EXPECT_TRUE(out.add(Buffer::copy_of(as_bytes(std::string_view("one"))), pieces, &owner, 5));
  EXPECT_FALSE(out.add(Buffer::copy_of(as_bytes(std::string_view("two"))), {}, &owner, 7));
  EXPECT_EQ(out.bytes(), 10U);
  EXPECT_EQ(out.move_to(queue, 6), 0U);
  EXPECT_EQ(out.move_to(queue, 4), 12U);
  EXPECT_EQ(out.taken(), 10U);
  EXPECT_EQ(owner.notified, 0U);
  EXPECT_EQ(take_all(queue), "oneloantwo");
  EXPECT_EQ(owner.notified, 1U);
}

TEST(Http2StreamOutput, LoansAreCopiedOrDropped) {
  pipe::SendQueue queue;
  StreamOutput out;
  CountedOwner kept;
  CountedOwner dropped;
  std::string loan = "loan";
  const std::array<ConstBuffer, 1> pieces = {{{reinterpret_cast<const std::byte*>(loan.data()), loan.size()}}};
  out.add({}, pieces, &kept, 0);
  out.copy_and_release(kept);
  out.add({}, pieces, &dropped, 0);
  loan = "####";
  static_cast<void>(out.move_to(queue, 6));
  EXPECT_TRUE(out.drop(queue));
  EXPECT_EQ(out.bytes(), 0U);
  EXPECT_EQ(take_all(queue), "loan##");
  EXPECT_EQ(kept.notified, 0U);
  EXPECT_EQ(dropped.notified, 1U);
}

TEST(Http2StreamPace, APeerMustTakeWhatWaited) {
  pipe::SendQueue queue;
  StreamOutput out;
  StreamPace pace;
  out.add(Buffer::allocate(100), {}, nullptr, 0);
  EXPECT_FALSE(pace.check(out));  // Nothing waited before.
  static_cast<void>(out.move_to(queue, 99));
  const auto missed = pace.check(out);
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->taken, 99U);
  EXPECT_EQ(missed->wanted, 100U);
  static_cast<void>(out.move_to(queue, 1));
  EXPECT_FALSE(pace.check(out));
  out.add(Buffer::allocate(2 * StreamPace::taken_bytes_least), {}, nullptr, 0);
  EXPECT_FALSE(pace.check(out));
  static_cast<void>(out.move_to(queue, StreamPace::taken_bytes_least));
  EXPECT_FALSE(pace.check(out));
}

TEST(Http2PingLimit, CountsPingsThatComeTooSoon) {
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  PingLimit limit(std::chrono::seconds(10), 1);
  EXPECT_TRUE(limit.on_ping(at(0)));
  EXPECT_TRUE(limit.on_ping(at(9)));  // The first strike.
  EXPECT_TRUE(limit.on_ping(at(19)));
  limit.on_sent();
  EXPECT_TRUE(limit.on_ping(at(20)));
  EXPECT_FALSE(limit.on_ping(at(21)));
  PingLimit none(Duration::zero(), 0);
  EXPECT_TRUE(none.on_ping(at(0)));
  EXPECT_TRUE(none.on_ping(at(0)));
}

TEST(Http2PeerSilence, TwoQuietIntervalsAreTheEnd) {
  using enum PeerSilence::Verdict;
  PeerSilence silence;
  silence.received(1);
  EXPECT_EQ(silence.check(), alive);
  EXPECT_EQ(silence.check(), quiet);
  silence.received(1);  // Anything is a sign of life.
  EXPECT_EQ(silence.check(), alive);
  EXPECT_EQ(silence.check(), quiet);
  EXPECT_EQ(silence.check(false), alive);
  EXPECT_EQ(silence.check(), quiet);
  EXPECT_EQ(silence.check(), dead);
}

}  // namespace
}  // namespace hawser::protocol::http2
