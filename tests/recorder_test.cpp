// Recordings of requests: their format, and what a server records.
#include "hawser/recorder.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hawser/crc32c.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "observe/record_format.h"
#include "tests/testing.h"

namespace hawser::recorder_test {

using namespace testing_tools;
using observe::RecordedCall;
using observe::RecordReader;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::string repeat(std::string text, std::uint32_t times) {
  std::string all;
  for (std::uint32_t i = 0; i < times; ++i) all += text;
  return all;
}
Result<std::string> fail_always(std::string text) { return fail(ErrorCode::overloaded, text); }
Task<void> count(std::uint32_t items, Writer<std::uint32_t> to) {
  for (std::uint32_t i = 0; i < items; ++i) {
    static_cast<void>(co_await to.write(i));
  }
}

Task<void> hold(Context& context, std::string) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
}

// ---- The format ----

std::string sample_file() {
  std::string file = observe::recording_header();
  observe::append_record(file, {.at = 5ms,
                                .duration = 2ms,
                                .outcome = ErrorCode::ok,
                                .reply_bytes = 7,
                                .reply_checksum = 0x12345678,
                                .method = "shop/Order",
                                .protocol = "hawser",
                                .metadata = {},
                                .body = as_bytes("body"),
                                .payload = as_bytes("payload"),
                                .attachment = as_bytes("attachment")});
  observe::append_record(file, {.at = 1ms, .outcome = ErrorCode::overloaded, .method = "f", .protocol = "grpc"});
  return file;
}

Error error_of_file(std::string_view file) {
  RecordReader reader(as_bytes(file));
  if (const Result<void> begun = reader.header(); !begun) return begun.error();
  for (;;) {
    const auto call = reader.next();
    if (!call) return call.error();
    if (!*call) return {.code = ErrorCode::ok};
  }
}

TEST(RecordFormat, ReadsWhatWasWritten) {
  const std::string file = sample_file();
  RecordReader reader(as_bytes(file));
  ASSERT_TRUE(reader.header());
  const auto first = reader.next();
  ASSERT_TRUE(first && *first);
  EXPECT_EQ((*first)->at, 5ms);
  EXPECT_EQ((*first)->duration, 2ms);
  EXPECT_EQ((*first)->reply_checksum, 0x12345678U);
  EXPECT_EQ((*first)->reply_bytes, 7U);
  EXPECT_EQ((*first)->method, "shop/Order");
  EXPECT_EQ(as_text((*first)->body), "body");
  EXPECT_EQ(as_text((*first)->payload), "payload");
  EXPECT_EQ(as_text((*first)->attachment), "attachment");
  const auto second = reader.next();
  ASSERT_TRUE(second && *second);
  EXPECT_EQ((*second)->outcome, ErrorCode::overloaded);
  EXPECT_FALSE((*second)->reply_checksum);
  const auto end = reader.next();
  ASSERT_TRUE(end);
  EXPECT_FALSE(*end);
}

TEST(RecordFormat, AnyTruncationIsRefusedWithItsOffset) {
  const std::string file = sample_file();
  const std::size_t first = observe::recording_header().size();
  std::string one = file.substr(0, first);
  RecordReader reader(as_bytes(file));
  ASSERT_TRUE(reader.header() && reader.next());
  const std::size_t second = first + reader.record().size();
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Error error = error_of_file(std::string_view(file).substr(0, size));
    if (size == first || size == second) {
      EXPECT_EQ(error.code, ErrorCode::ok) << size;  // It ends between two records.
    } else if (size < first) {
      EXPECT_EQ(error.code, ErrorCode::protocol_error) << size;
    } else {
      EXPECT_EQ(error.code, ErrorCode::protocol_error) << size;
      const std::size_t offset = size < second ? first : second;
      EXPECT_THAT(error.text, HasSubstr("offset " + std::to_string(offset) + ":")) << size;
    }
  }
}

TEST(RecordFormat, AnyFlippedBitIsRefused) {
  const std::string file = sample_file();
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string wrong = file;
      wrong[at] = static_cast<char>(wrong[at] ^ (1 << bit));
      EXPECT_NE(error_of_file(wrong).code, ErrorCode::ok) << at << " " << bit;
    }
  }
}

// A record with a right checksum, as somebody hostile makes it.
std::string file_with(std::string content) {
  const auto number = [](std::size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
    return bytes;
  };
  const std::string size = number(content.size());
  return observe::recording_header() + size + number(crc32c(crc32c(as_bytes(size)), as_bytes(content))) + content;
}

TEST(RecordFormat, HostileLengthsAreRefused) {
  EXPECT_THAT(error_of_file(observe::recording_header() + "\xff\xff\xff\xff" + std::string(4, '\0')).text,
              HasSubstr("4294967295 bytes exceeds"));
  std::string right = sample_file().substr(observe::recording_header().size() + 8);
  right.resize(right.size() - 1);
  const std::string fixed(32, '\0');  // Everything before the texts.
  const std::string method("\x01\0\0\0f", 5);
  const std::string none(4, '\0');
  EXPECT_EQ(error_of_file(file_with(fixed + method + none + none + none + none + none)).code, ErrorCode::ok);
  EXPECT_THAT(error_of_file(file_with("")).text, HasSubstr("contradict"));
  EXPECT_THAT(error_of_file(file_with(fixed + method + none + none + none + none + none + "x")).text,
              HasSubstr("contradict"));
  EXPECT_THAT(error_of_file(file_with(fixed + "\xff\xff\xff\x7f" + "f")).text, HasSubstr("contradict"));
  EXPECT_THAT(error_of_file(file_with(fixed + none + none + none + none + none + none)).text, HasSubstr("no method"));
  EXPECT_THAT(
      error_of_file(file_with(std::string(8, '\xff') + fixed.substr(8) + method + none + none + none + none + none))
          .text,
      HasSubstr("negative time"));
  const std::string late = std::string(7, '\xff') + '\x7f';
  EXPECT_THAT(error_of_file(file_with(late + fixed.substr(8) + method + none + none + none + none + none)).text,
              HasSubstr("more than 10 years"));
  const std::string metadata = std::string("\x03\0\0\0", 4) + std::string("\x09\x09\x09");
  EXPECT_THAT(error_of_file(file_with(fixed + method + none + metadata + none + none + none)).text,
              HasSubstr("malformed metadata"));
  EXPECT_THAT(error_of_file("GIF89a").text, HasSubstr("is not a recording"));
}

// ---- Recording ----

struct Kept {
  std::string method;
  ErrorCode outcome;
  Metadata metadata;
  std::string body;
  std::string payload;
  std::string attachment;
  std::uint64_t reply_bytes;
  std::optional<std::uint32_t> reply_checksum;
};

std::vector<Kept> records_of(const Recorder::Part& part) {
  RecordReader reader(as_bytes(part.records));
  std::vector<Kept> all;
  for (;;) {
    const auto call = reader.next();
    EXPECT_TRUE(call) << error_of(call);
    if (!call || !*call) return all;
    const RecordedCall& one = **call;
    all.push_back({std::string(one.method), one.outcome, MetadataView(one.metadata).copy(),
                   std::string(as_text(one.body)), std::string(as_text(one.payload)),
                   std::string(as_text(one.attachment)), one.reply_bytes, one.reply_checksum});
  }
}

void with_server(Recorder recorder, Task<void> (*calls)(Client&, Recorder)) {
  Loop loop;
  loop.run([](Loop& here, Recorder given, Task<void> (*run)(Client&, Recorder)) -> Task<void> {
    Server server(here);
    server.register_handler<repeat, fail_always, count, hold>();
    server.use(given.calls());
    EXPECT_OK(server.start());
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    co_await run(client, given);
  }(loop, recorder, calls));
}

TEST(Recorder, RecordsNothingUnlessSomebodyTakes) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    auto reply = co_await client.call<repeat>("a", 2U);
    EXPECT_EQ(reply, "aa");
    const auto part = recorder.take("one");
    REQUIRE_OK(part);
    EXPECT_THAT(part->records, IsEmpty());
    EXPECT_EQ(part->recorded, 0U);
  });
}

TEST(Recorder, RecordsArgumentsMetadataAndOutcomes) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("one"));
    const std::string attachment(10'000, 'z');
    CallOptions options;
    options.attachment = as_bytes(attachment);
    options.metadata = {{"tenant", "a"}, {"Authorization", "Bearer x"}, {"x-Auth-Token", "y"}, {"COOKIE", "z"}};
    auto reply = co_await client.call<repeat>(options, "ab", 3U);
    EXPECT_EQ(reply, "ababab");
    auto large = co_await client.call<repeat>(std::string(20'000, 'x'), 1U);
    REQUIRE_OK(large);
    auto failed = co_await client.call<fail_always>("no");
    EXPECT_FALSE(failed);
    const auto part = recorder.take("one");
    REQUIRE_OK(part);
    const std::vector<Kept> records = records_of(*part);
    EXPECT_EQ(part->recorded, 3U);
    EXPECT_EQ(records.size(), 3U);
    if (records.size() != 3) co_return;
    EXPECT_THAT(records[0].method, HasSubstr("repeat"));
    EXPECT_EQ(records[0].outcome, ErrorCode::ok);
    EXPECT_EQ(records[0].metadata, (Metadata{{"tenant", "a"}}));
    EXPECT_THAT(records[0].body, HasSubstr("ab"));
    EXPECT_EQ(records[0].attachment, attachment);
    // The encoded result: a count of 4 bytes, and the text.
    const std::string result = std::string("\x06\0\0\0", 4) + "ababab";
    EXPECT_EQ(records[0].reply_bytes, result.size());
    EXPECT_EQ(records[0].reply_checksum, crc32c(as_bytes(result)));
    EXPECT_EQ(records[1].body.size() + records[1].payload.size(), 20'008U);
    EXPECT_GT(records[1].reply_bytes, 20'000U);
    EXPECT_EQ(records[2].outcome, ErrorCode::overloaded);
    EXPECT_FALSE(records[2].reply_checksum);
    // Records are taken once; the count goes on.
    const auto rest = recorder.take("one");
    REQUIRE_OK(rest);
    EXPECT_THAT(rest->records, IsEmpty());
    EXPECT_EQ(rest->recorded, 3U);
  });
}

TEST(Recorder, IsBounded) {
  with_server(Recorder({.queue_bytes_max = 4000, .request_bytes_max = 2000}),
              [](Client& client, Recorder recorder) -> Task<void> {
                REQUIRE_OK(recorder.take("one"));
                for (int i = 0; i < 100; ++i) {
                  auto reply = co_await client.call<repeat>("abc", 1U);
                  REQUIRE_OK(reply);
                }
                auto large = co_await client.call<repeat>(std::string(3000, 'x'), 1U);
                REQUIRE_OK(large);
                const auto part = recorder.take("one");
                REQUIRE_OK(part);
                EXPECT_LE(part->records.size(), 4000U);
                EXPECT_GT(part->recorded, 0U);
                EXPECT_EQ(part->recorded + part->dropped, 100U);
                EXPECT_EQ(part->skipped, 1U);
                EXPECT_THAT(records_of(*part), SizeIs(part->recorded));
              });
}

TEST(Recorder, CopiesOfCallsInFlightAreBounded) {
  with_server(Recorder({.queue_bytes_max = 4000, .request_bytes_max = 2000}),
              [](Client& client, Recorder recorder) -> Task<void> {
                Loop& loop = *Loop::current();
                REQUIRE_OK(recorder.take("one"));
                Scope scope;
                auto waits = [](Client& of) -> Task<void> {
                  auto ended = co_await of.call<hold>(std::string(1500, 'x'));
                  EXPECT_FALSE(ended);
                };
                for (int i = 0; i < 10; ++i) scope.spawn(waits(client));
                const auto dropped = [&] { return recorder.take("one")->dropped; };
                auto bounded = co_await eventually(loop, [&] { return dropped() == 8; });
                EXPECT_TRUE(bounded);
                client.close();
                while (!scope.empty()) {
                  co_await loop.sleep(1ms);
                }
                auto recorded = co_await eventually(loop, [&] { return recorder.take("one")->recorded == 2; });
                EXPECT_TRUE(recorded);
                EXPECT_EQ(dropped(), 8U);
              });
}

TEST(Recorder, CallsWithStreamsAreCountedOnly) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("one"));
    auto call = co_await client.open<count>(3U);
    REQUIRE_OK(call);
    for (std::uint32_t i = 0; i < 3; ++i) {
      auto item_by = call->reader();  // The task refers to it.
      auto item = co_await item_by.next();
      EXPECT_TRUE(item && *item);
    }
    auto ended = co_await call->finish();
    EXPECT_OK(ended);
    const auto part = recorder.take("one");
    REQUIRE_OK(part);
    EXPECT_EQ(part->recorded, 0U);
    EXPECT_EQ(part->skipped, 1U);
  });
}

// Calls `method` with JSON over HTTP and returns the status.
Task<int> status_of_json(HttpClient& http, const Server& server, std::string_view method, std::string json) {
  HttpClientRequest request{.method = "POST", .url = "http://" + server.address() + "/" + std::string(method)};
  request.body = std::move(json);
  request.headers = {{"Content-Type", "application/json"}};
  const Result<HttpClientResponse> response = co_await http.send(std::move(request));
  EXPECT_OK(response);
  co_return response ? response->status : 0;
}

TEST(Recorder, ArgumentsThatCameAsJsonAreRecordedAsTheyWereConverted) {
  const Recorder recorder({.request_bytes_max = 50'000});
  Loop loop;
  loop.run([](Loop& here, Recorder given) -> Task<void> {
    Server server(here);
    server.register_handler<repeat, count>();
    server.use(given.calls());
    server.enable(http());
    EXPECT_OK(server.start());
    HttpClient http(here);
    REQUIRE_OK(given.take("one"));
    const std::string name(detail::MethodFacts<repeat>::name);
    const std::string text(20'000, 'x');
    auto good = co_await status_of_json(http, server, name, R"(["ab", 3])");
    EXPECT_EQ(good, 200);
    auto large = co_await status_of_json(http, server, name, "[\"" + text + "\", 1]");
    EXPECT_EQ(large, 200);
    auto wrong = co_await status_of_json(http, server, name, R"(["ab", "cd"])");
    EXPECT_EQ(wrong, 400);
    const auto part = given.take("one");
    REQUIRE_OK(part);
    const std::vector<Kept> records = records_of(*part);
    EXPECT_EQ(records.size(), 2U);
    EXPECT_EQ(part->skipped, 1U);  // Its arguments are not known.
    if (records.size() != 2) co_return;
    EXPECT_EQ(records[0].body, std::string("\x02\0\0\0"
                                           "ab"
                                           "\x03\0\0\0",
                                           10));
    EXPECT_EQ(records[0].outcome, ErrorCode::ok);
    EXPECT_EQ(records[1].body.size() + records[1].payload.size(), 20'008U);
  }(loop, recorder));
}

TEST(Recorder, APartOfTheCallsIsRecorded) {
  with_server(Recorder(), [](Client& client, Recorder recorder) -> Task<void> {
    REQUIRE_OK(recorder.take("none", 0));
    for (int i = 0; i < 50; ++i) {
      auto reply = co_await client.call<repeat>("abc", 1U);
      REQUIRE_OK(reply);
    }
    const auto part = recorder.take("none", 0);
    REQUIRE_OK(part);
    EXPECT_EQ(part->recorded, 0U);
  });
}

TEST(Recorder, OneRecordingRunsAtATime) {
  const Recorder recorder;
  EXPECT_TRUE(recorder.take("one"));
  const auto other = recorder.take("two");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::overloaded);
  EXPECT_TRUE(recorder.take("one", 1, true));
  EXPECT_TRUE(recorder.take("two"));
}

Task<int> status_of(HttpClient& http, const Server& server, std::string query, std::string field = {}) {
  HttpClientRequest request;
  request.method = "POST";
  request.url = "http://" + server.address() + "/record?" + query;
  request.headers = {{"Hawser-Token", "the token of a test"}};
  if (!field.empty()) request.headers.emplace_back(field, "http://other.example");
  const Result<HttpClientResponse> response = co_await http.send(std::move(request));
  EXPECT_OK(response);
  co_return response ? response->status : 0;
}

TEST(Recorder, OnlyClientsOfThisMachineFetchRecords) {
  Loop loop;
  loop.run([](Loop& here) -> Task<void> {
    Server server(here);
    PagesOptions pages;
    pages.pages = pages.changes = PageAccess::all;
    pages.recorder = Recorder();
    pages.change_token = "the token of a test";
    enable_pages(server, std::move(pages));
    EXPECT_OK(server.start());
    HttpClient http(here);
    auto forwarded = co_await status_of(http, server, "recording=one", "X-Forwarded-For");
    EXPECT_EQ(forwarded, 403);
    auto other_site = co_await status_of(http, server, "recording=one", "Origin");
    EXPECT_EQ(other_site, 403);
    auto nameless = co_await status_of(http, server, "");
    EXPECT_EQ(nameless, 400);
    auto wrong = co_await status_of(http, server, "recording=one&ratio=2");
    EXPECT_EQ(wrong, 400);
    auto none = co_await status_of(http, server, "recording=one&ratio=x");
    EXPECT_EQ(none, 400);
    auto half = co_await status_of(http, server, "recording=one&ratio=0.5x");
    EXPECT_EQ(half, 400);
    auto no_number = co_await status_of(http, server, "recording=one&ratio=nan");
    EXPECT_EQ(no_number, 400);
    auto right = co_await status_of(http, server, "recording=one&ratio=0.5");
    EXPECT_EQ(right, 200);
    auto second = co_await status_of(http, server, "recording=two");
    EXPECT_EQ(second, 409);
    auto ended = co_await status_of(http, server, "recording=one&end=1");
    EXPECT_EQ(ended, 200);
    auto third = co_await status_of(http, server, "recording=two");
    EXPECT_EQ(third, 200);
  }(loop));
}

TEST(Recorder, ARecordingThatHasEndedIsLeftByTheNextCallAlsoWhenItsQueueIsFull) {
  const Recorder recorder({.queue_bytes_max = 1});
  Loop loop;
  loop.run([](Loop& here, const Recorder& of) -> Task<void> {
    Server server(here);
    server.use(of.calls());
    server.register_handler<repeat>();
    EXPECT_OK(server.start());
    EXPECT_OK(of.take("one"));
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    auto dropped = co_await client.call<repeat>("x", 1);
    EXPECT_OK(dropped);
    EXPECT_FALSE(of.calls().skips({}));
    const auto ended = of.take("one", 1, true);
    REQUIRE_OK(ended);
    EXPECT_EQ(ended->dropped, 1U);
    auto after = co_await client.call<repeat>("x", 1);
    EXPECT_OK(after);
    EXPECT_TRUE(of.calls().skips({}));
  }(loop, recorder));
}

TEST(Recorder, WithoutARecorderThereIsNoRoute) {
  Loop loop;
  loop.run([](Loop& here) -> Task<void> {
    Server server(here);
    enable_pages(server);
    EXPECT_OK(server.start());
    HttpClient http(here);
    auto status = co_await status_of(http, server, "recording=one");
    EXPECT_EQ(status, 404);
  }(loop));
}

TEST(Recorder, WrongArgumentsAreRefused) {
  const Recorder recorder;
  EXPECT_EQ(recorder.take("").error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(recorder.take(std::string(65, 'x')).error().code, ErrorCode::invalid_argument);
  for (const double ratio : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(recorder.take("one", ratio).error().code, ErrorCode::invalid_argument);
  }
  try {
    const Recorder without_queue({.queue_bytes_max = 0, .request_bytes_max = 5});
    ADD_FAILURE() << "a queue of no bytes";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(std::string_view(error.what()),
              "hawser: RecorderOptions::queue_bytes_max is 0, request_bytes_max is 5, and both must be at least 1");
  }
  EXPECT_THROW(Recorder({.request_bytes_max = RecorderOptions::request_bytes_limit + 1}), std::invalid_argument);
  EXPECT_NO_THROW(Recorder({.request_bytes_max = RecorderOptions::request_bytes_limit}));
  EXPECT_THROW(Recorder({.request_bytes_max = 0}), std::invalid_argument);
}

}  // namespace hawser::recorder_test
