// Streams in recordings: their format, and what a server records of them.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/byte_fields.h"
#include "hawser/crc32c.h"
#include "hawser/hawser.h"
#include "hawser/recorder.h"
#include "observe/record_format.h"
#include "tests/testing.h"

namespace hawser::recorder_streams_test {

using namespace testing_tools;
using observe::RecordedCall;
using observe::RecordReader;
using observe::StreamEvent;
using observe::StreamEvents;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = StreamEvent::Kind;

// ---- The format ----

struct Kept {
  Kind kind;
  Duration at;
  std::string bytes;  // Size and checksum of an item of the handler.
};

std::vector<Kept> events_of(const RecordedCall& call) {
  std::vector<Kept> all;
  StreamEvents events(call.events);
  while (const auto event = events.next()) {
    all.push_back({event->kind, event->at,
                   event->kind == Kind::handler_item
                       ? std::to_string(event->bytes) + ":" + std::to_string(event->checksum)
                       : std::string(as_text(event->body)) + std::string(as_text(event->payload))});
  }
  EXPECT_FALSE(events.malformed());
  return all;
}

std::string sample_events() {
  std::string events;
  observe::append_event(events,
                        {.kind = Kind::caller_item, .at = 1ms, .body = as_bytes("ab"), .payload = as_bytes("c")});
  observe::append_event(events, {.kind = Kind::handler_item, .at = 2ms, .bytes = 7, .checksum = 99});
  observe::append_event(events, {.kind = Kind::caller_item, .at = 2ms});
  observe::append_event(events, {.kind = Kind::caller_end, .at = 5ms});
  observe::append_event(events, {.kind = Kind::handler_item, .at = 6ms});
  return events;
}

std::string record_with(std::string_view events, bool truncated = false) {
  std::string record;
  observe::append_record(record, {.method = "shop/Chat",
                                  .protocol = "grpc",
                                  .body = as_bytes("request"),
                                  .streams = true,
                                  .truncated = truncated,
                                  .events = as_bytes(events)});
  return record;
}

std::string text_of_error(std::string_view records, bool streams = true) {
  RecordReader reader(as_bytes(records), 0, streams);
  const auto call = reader.next();
  return call ? "none" : call.error().text;
}

TEST(RecordedStreams, ReadsWhatWasWritten) {
  for (const bool truncated : {false, true}) {
    const std::string record = record_with(sample_events(), truncated);
    RecordReader reader(as_bytes(record));
    const auto call = reader.next();
    ASSERT_TRUE(call && *call) << error_of(call);
    EXPECT_TRUE((*call)->streams);
    EXPECT_EQ((*call)->truncated, truncated);
    EXPECT_EQ(as_text((*call)->body), "request");
    const std::vector<Kept> events = events_of(**call);
    ASSERT_EQ(events.size(), 5U);
    EXPECT_EQ(events[0].bytes, "abc");
    EXPECT_EQ(events[0].at, 1ms);
    EXPECT_EQ(events[1].bytes, "7:99");
    EXPECT_EQ(events[2].bytes, "");
    EXPECT_EQ(events[3].kind, Kind::caller_end);
    EXPECT_EQ(events[4].at, 6ms);
  }
  const std::string empty = record_with("");
  RecordReader reader(as_bytes(empty));
  const auto call = reader.next();
  ASSERT_TRUE(call && *call);
  EXPECT_TRUE((*call)->streams);
}

TEST(RecordedStreams, AFileOfVersion1IsReadAndHasNoStreams) {
  ByteWriter header;
  header.bytes(as_bytes("HAWSREC\n")).number(std::uint32_t{1});
  header.number(crc32c(header.written()));
  std::string file(as_text(header.written()));
  observe::append_record(file, {.at = 3ms, .method = "shop/Order", .protocol = "hawser", .body = as_bytes("old")});
  const std::size_t whole = file.size();
  file += record_with(sample_events());
  RecordReader reader(as_bytes(file));
  ASSERT_TRUE(reader.header());
  EXPECT_FALSE(reader.streams());
  const auto call = reader.next();
  ASSERT_TRUE(call && *call) << error_of(call);
  EXPECT_EQ(as_text((*call)->body), "old");
  EXPECT_FALSE((*call)->streams);
  const auto second = reader.next();  // No program wrote that.
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().text, HasSubstr("at offset " + std::to_string(whole) + ": the lengths of a record"));
  ByteWriter later;
  later.bytes(as_bytes("HAWSREC\n")).number(std::uint32_t{3});
  later.number(crc32c(later.written()));
  EXPECT_THAT(RecordReader(later.written()).header().error().text, HasSubstr("has version 3; this program reads"));
}

TEST(RecordedStreams, HostileItemsAreRefused) {
  const auto one = [](StreamEvent event) {
    std::string bytes;
    observe::append_event(bytes, event);
    return bytes;
  };
  const std::string item = one({.kind = Kind::caller_item, .at = 5ms, .body = as_bytes("abc")});
  const std::string end = one({.kind = Kind::caller_end, .at = 6ms});
  EXPECT_THAT(text_of_error(record_with(end + one({.kind = Kind::caller_item, .at = 7ms}))),
              HasSubstr("an item of a caller follows its end"));
  EXPECT_THAT(text_of_error(record_with(end + end)), HasSubstr("an item of a caller follows its end"));
  EXPECT_EQ(text_of_error(record_with(end + one({.kind = Kind::handler_item, .at = 6ms}))), "none");
  EXPECT_THAT(text_of_error(record_with(end + item)), HasSubstr("not in the order of their times"));
  EXPECT_THAT(text_of_error(record_with(one({.at = -1ns}))), HasSubstr("not in the order of their times"));
  EXPECT_THAT(text_of_error(record_with(one({.at = Duration::max()}))), HasSubstr("more than 10 years"));
  EXPECT_THAT(text_of_error(record_with(one({.kind = static_cast<Kind>(3)}))), HasSubstr("malformed"));
  EXPECT_THAT(text_of_error(record_with(one({.kind = static_cast<Kind>(255)}))), HasSubstr("malformed"));
  for (std::size_t size = 1; size < item.size(); ++size) {
    EXPECT_THAT(text_of_error(record_with(item.substr(0, size))), HasSubstr("malformed")) << size;
  }
  std::string long_item = item;  // Its length is that of more than the record.
  long_item.replace(9, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(text_of_error(record_with(long_item)), HasSubstr("malformed"));
  // Every changed byte of a whole record is noticed.
  const std::string record = record_with(sample_events());
  for (std::size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    EXPECT_NE(text_of_error(damaged), "none") << i;
    EXPECT_NE(text_of_error(std::string_view(record).substr(0, i)), i == 0 ? "" : "none") << i;
  }
}

// ---- Recording ----

// Answers each item twice, and ends after `most` items.
Task<std::uint32_t> twice(std::uint32_t most, Reader<std::string> from, Writer<std::string> to) {
  std::uint32_t items = 0;
  while (items < most) {
    auto item = co_await from.next();
    if (!item || !*item) break;
    ++items;
    for (int i = 0; i < 2; ++i) {
      static_cast<void>(co_await to.write(**item));
    }
  }
  co_return items;
}
Task<Result<void>> gives_up(Reader<std::string> from) {
  static_cast<void>(co_await from.next());
  co_return fail(ErrorCode::overloaded, "no more");
}

struct Record {
  std::string method;
  ErrorCode outcome;
  bool truncated;
  std::vector<Kept> events;
  std::uint64_t reply_bytes;
  Duration duration;
};

std::vector<Record> records_of(const Recorder::Part& part) {
  RecordReader reader(as_bytes(part.records));
  std::vector<Record> all;
  for (;;) {
    const auto call = reader.next();
    EXPECT_TRUE(call) << error_of(call);
    if (!call || !*call) return all;
    const RecordedCall& one = **call;
    EXPECT_TRUE(one.streams);
    all.push_back({std::string(one.method), one.outcome, one.truncated, events_of(one), one.reply_bytes, one.duration});
  }
}

void with_server(Recorder recorder, Task<void> (*calls)(Client&, Recorder)) {
  Loop loop;
  loop.run([](Loop& here, Recorder given, Task<void> (*run)(Client&, Recorder)) -> Task<void> {
    Server server(here);
    server.register_handler<twice, gives_up>();
    server.use(given.calls());
    EXPECT_OK(server.start());
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    co_await run(client, given);
  }(loop, recorder, calls));
}

Task<void> talk(Client& client, std::vector<std::string> items, std::uint32_t most, Duration pause = 0ms) {
  Loop& loop = *Loop::current();
  auto call = co_await client.open<twice>(most);
  REQUIRE_OK(call);
  for (const std::string& item : items) {
    if (pause != 0ms) {
      co_await loop.sleep(pause);
    }
    auto written_by = call->writer();  // The task refers to it.
    auto written = co_await written_by.write(item);
    if (!written) break;
    for (int i = 0; i < 2; ++i) {
      auto answer_by = call->reader();  // The task refers to it.
      auto answer = co_await answer_by.next();
      EXPECT_TRUE(answer && *answer && **answer == item);
    }
  }
  call->writer().end();
  auto ended = co_await call->finish();
  EXPECT_OK(ended);
}

std::string encoded(const std::string& text) {
  ByteWriter out;
  out.number(static_cast<std::uint32_t>(text.size())).bytes(as_bytes(text));
  return std::string(as_text(out.written()));
}

TEST(RecordedStreams, ItemsOfBothWaysInOrderWithTheirTimes) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("one", 1, false, true));
    co_await talk(client, {"a", "bc"}, 10, 20ms);
    const auto part = recorder.take("one", 1, false, true);
    REQUIRE_OK(part);
    EXPECT_EQ(part->recorded, 1U);
    EXPECT_EQ(part->skipped, 0U);
    const std::vector<Record> records = records_of(*part);
    REQUIRE(records.size() == 1);
    EXPECT_THAT(records[0].method, HasSubstr("twice"));
    EXPECT_EQ(records[0].outcome, ErrorCode::ok);
    EXPECT_FALSE(records[0].truncated);
    EXPECT_EQ(records[0].reply_bytes, 4U);
    const std::vector<Kept>& events = records[0].events;
    REQUIRE(events.size() == 7);
    std::vector<Kind> kinds;
    for (const Kept& one : events) kinds.push_back(one.kind);
    EXPECT_THAT(kinds, ElementsAre(Kind::caller_item, Kind::handler_item, Kind::handler_item, Kind::caller_item,
                                   Kind::handler_item, Kind::handler_item, Kind::caller_end));
    EXPECT_EQ(events[0].bytes, encoded("a"));
    EXPECT_EQ(events[3].bytes, encoded("bc"));
    const std::string answer = "6:" + std::to_string(crc32c(as_bytes(encoded("bc"))));
    EXPECT_EQ(events[4].bytes, answer);
    EXPECT_EQ(events[5].bytes, answer);
    EXPECT_GE(events[3].at - events[0].at, 15ms);
    EXPECT_LE(events[6].at, records[0].duration);
  });
}

// Recorders of one server, such as one for the operator and one of the program, do not disturb one another.
TEST(RecordedStreams, EachOfSeveralRecordersHasAllItems) {
  Loop loop;
  loop.run([](Loop& here) -> Task<void> {
    const std::vector<Recorder> recorders(3);
    Server server(here);
    server.register_handler<twice, gives_up>();
    for (const Recorder& one : recorders) server.use(one.calls());
    EXPECT_OK(server.start());
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    // The one in the middle begins when the others run already, and does not see the call that has begun before.
    REQUIRE_OK(recorders[0].take("one", 1, false, true));
    REQUIRE_OK(recorders[2].take("one", 1, false, true));
    co_await talk(client, {"a", "bc"}, 10);
    REQUIRE_OK(recorders[1].take("one", 1, false, true));
    co_await talk(client, {"d"}, 10);
    std::vector<std::vector<Record>> found;
    for (const Recorder& one : recorders) found.push_back(records_of(*one.take("one", 1, true, true)));
    REQUIRE(found[0].size() == 2 && found[1].size() == 1 && found[2].size() == 2);
    for (const std::vector<Record>& records : found) {
      const Record& last = records.back();
      EXPECT_FALSE(last.truncated);
      REQUIRE(last.events.size() == 4);
      EXPECT_EQ(last.events[0].bytes, encoded("d"));
      for (const std::size_t i : {1, 2}) {
        EXPECT_EQ(last.events[i].bytes, "5:" + std::to_string(crc32c(as_bytes(encoded("d")))));
      }
      EXPECT_EQ(last.events[3].kind, Kind::caller_end);
      if (records.size() == 2) {
        EXPECT_EQ(records[0].events.size(), 7U);
      }
    }
  }(loop));
}

TEST(RecordedStreams, LargeItemsHaveTheirPayload) {
  with_server(Recorder({.stream_bytes_max = std::size_t{1} << 20}),
              [](Client& client, Recorder recorder) -> Task<void> {
                REQUIRE_OK(recorder.take("one", 1, false, true));
                const std::string large = text_of(50'000);
                co_await talk(client, {large}, 10);
                const std::vector<Record> records = records_of(*recorder.take("one", 1, false, true));
                REQUIRE(records.size() == 1 && records[0].events.size() == 4);
                EXPECT_THAT(records[0].events[0].bytes, HasSubstr(large));
                // The answer is encoded as the item was.
                const std::string& sent = records[0].events[0].bytes;
                EXPECT_EQ(records[0].events[1].bytes,
                          std::to_string(sent.size()) + ":" + std::to_string(crc32c(as_bytes(sent))));
              });
}

TEST(RecordedStreams, AStreamLongerThanTheBoundIsMarked) {
  // Room for a few items, by bytes; then by number.
  for (const RecorderOptions& options :
       {RecorderOptions{.stream_bytes_max = 200}, RecorderOptions{.stream_items_max = 5}}) {
    with_server(Recorder(options), [](Client& client, Recorder recorder) -> Task<void> {
      REQUIRE_OK(recorder.take("one", 1, false, true));
      co_await talk(client, std::vector<std::string>(20, "item"), 100);
      const auto part = recorder.take("one", 1, false, true);
      REQUIRE_OK(part);
      EXPECT_EQ(part->dropped, 0U);
      const std::vector<Record> records = records_of(*part);
      REQUIRE(records.size() == 1);
      EXPECT_TRUE(records[0].truncated);
      EXPECT_GE(records[0].events.size(), 5U);
      EXPECT_LE(records[0].events.size(), 9U);
      EXPECT_LT(part->records.size(), 500U);
      // The next stream is recorded again.
      co_await talk(client, {"x"}, 100);
      const std::vector<Record> more = records_of(*recorder.take("one", 1, false, true));
      REQUIRE(more.size() == 1);
      EXPECT_FALSE(more[0].truncated);
    });
  }
}

TEST(RecordedStreams, AllStreamsTogetherAreBounded) {
  with_server(Recorder({.queue_bytes_max = 4000, .stream_bytes_max = 3000}),
              [](Client& client, Recorder recorder) -> Task<void> {
                REQUIRE_OK(recorder.take("one", 1, false, true));
                Scope scope;
                for (int i = 0; i < 10; ++i) scope.spawn(talk(client, std::vector<std::string>(20, "0123456789"), 100));
                co_await scope.join();
                const auto part = recorder.take("one", 1, false, true);
                REQUIRE_OK(part);
                EXPECT_LE(part->records.size(), 4000U);
                EXPECT_EQ(part->recorded + part->dropped, 10U);
                EXPECT_EQ(records_of(*part).size(), part->recorded);
                // All of it is free again.
                co_await talk(client, std::vector<std::string>(20, "0123456789"), 100);
                const std::vector<Record> records = records_of(*recorder.take("one", 1, false, true));
                REQUIRE(records.size() == 1);
                EXPECT_FALSE(records[0].truncated);
              });
}

TEST(RecordedStreams, StreamsThatHaveNotEndedAreReturnedWithTheEndOfTheRecording) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("one", 1, false, true));
    auto call = co_await client.open<twice>(100U);
    REQUIRE_OK(call);
    const std::string item = "still";
    auto written_by = call->writer();  // The task refers to it.
    auto written = co_await written_by.write(item);
    REQUIRE_OK(written);
    for (int i = 0; i < 2; ++i) {
      auto answer_by = call->reader();  // The task refers to it.
      auto answer = co_await answer_by.next();
      EXPECT_TRUE(answer && *answer);
    }
    EXPECT_EQ(recorder.take("one", 1, false, true)->recorded, 0U);
    const auto part = recorder.take("one", 1, true, true);
    REQUIRE_OK(part);
    EXPECT_EQ(part->recorded, 1U);
    const std::vector<Record> records = records_of(*part);
    REQUIRE(records.size() == 1);
    EXPECT_TRUE(records[0].truncated);
    EXPECT_EQ(records[0].events.size(), 3U);
    // A later recording does not get the end of this call.
    REQUIRE_OK(recorder.take("two", 1, false, true));
    call->writer().end();
    auto ended = co_await call->finish();
    EXPECT_OK(ended);
    EXPECT_EQ(recorder.take("two", 1, true, true)->recorded, 0U);
  });
}

TEST(RecordedStreams, AnEndedRecordingLeavesNoItemsInTheQueue) {
  with_server(Recorder({.queue_bytes_max = 4000, .stream_bytes_max = 3000}),
              [](Client& client, Recorder recorder) -> Task<void> {
                REQUIRE_OK(recorder.take("one", 1, false, true));
                auto call = co_await client.open<twice>(100U);
                REQUIRE_OK(call);
                const std::string item = text_of(2500);
                const auto exchange = [](StreamingCall<twice>& on, std::string text) -> Task<void> {
                  auto written = co_await on.writer().write(text);
                  EXPECT_OK(written);
                  for (int i = 0; i < 2; ++i) {
                    auto answer = co_await on.reader().next();
                    EXPECT_TRUE(answer && *answer);
                  }
                };
                co_await exchange(*call, item);
                EXPECT_EQ(recorder.take("one", 1, true, true)->recorded, 1U);
                // The stream goes on. Neither its past nor its present items are a part of the next recording.
                co_await exchange(*call, "more");
                REQUIRE_OK(recorder.take("two", 1, false, true));
                co_await talk(client, {item}, 100);
                const auto part = recorder.take("two", 1, true, true);
                REQUIRE_OK(part);
                EXPECT_EQ(part->dropped, 0U);
                const std::vector<Record> records = records_of(*part);
                REQUIRE(records.size() == 1);
                EXPECT_FALSE(records[0].truncated);
                call->writer().end();
                auto ended = co_await call->finish();
                EXPECT_OK(ended);
              });
}

TEST(RecordedStreams, AnErrorAndAnEarlyEndOfTheHandler) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("one", 1, false, true));
    auto call = co_await client.open<gives_up>();
    REQUIRE_OK(call);
    const std::string item = "x";
    auto written_by = call->writer();  // The task refers to it.
    auto written = co_await written_by.write(item);
    EXPECT_OK(written);
    auto ended = co_await call->finish();
    EXPECT_ERROR(ended, overloaded, "no more");
    // The handler ends first.
    co_await talk(client, {"a", "b"}, 2);
    const std::vector<Record> records = records_of(*recorder.take("one", 1, false, true));
    REQUIRE(records.size() == 2);
    EXPECT_EQ(records[0].outcome, ErrorCode::overloaded);
    REQUIRE(!records[0].events.empty());  // finish() may have ended the caller's stream before the handler ended.
    EXPECT_EQ(records[0].events[0].bytes, encoded("x"));
    EXPECT_LE(records[0].events.size(), 2U);
    EXPECT_EQ(records[1].outcome, ErrorCode::ok);
    EXPECT_FALSE(records[1].truncated);
  });
}

TEST(RecordedStreams, WrongBoundsAreRefused) {
  EXPECT_THROW(Recorder({.stream_bytes_max = RecorderOptions::request_bytes_limit + 1}), std::invalid_argument);
  EXPECT_NO_THROW(Recorder({.stream_bytes_max = 0, .stream_items_max = 0}));
}

}  // namespace hawser::recorder_streams_test
