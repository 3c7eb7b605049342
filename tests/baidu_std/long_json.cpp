#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/baidu_std/fixture.h"

// Long JSON is converted on threads of the offload pool.
namespace hawser::protocol::baidu_std {

namespace {

const std::string& long_json() {
  static const std::string json = "[" + text_of(100'000) + "]";
  return json;
}
const std::string& gate_json() {
  static const std::string json = "[gate" + text_of(100'000) + "]";
  return json;
}
// Conversions wait at the gate until it is open.
struct Gate {
  Gate() { gate_closed = true; }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }
  static void open() {
    gate_closed = false;
    gate_closed.notify_all();
  }
};

}  // namespace

TEST_F(BaiduStd, LongJsonIsConvertedOffTheLoop) {
  const int before = conversions_elsewhere.load();
  RawSocket socket = connected();
  // Frames that arrive during a conversion are answered after it.
  socket.send(bytes_of({.id = 1, .data = long_json(), .attachment = "a", .meta = {.content_type = 1}}) +
              bytes_of({.id = 2, .data = "short"}) +
              bytes_of({.method = "Later", .id = 3, .data = long_json(), .meta = {.content_type = 2}}) +
              bytes_of({.id = 4, .data = "[x]", .meta = {.content_type = 1}}));
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 4; ++i) {
    const std::optional<Answer> answer = receive_answer(socket);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->error_code, 0) << answer->error_text;
    const bool is_long = answer->id % 2 == 1;
    EXPECT_EQ(answer->data, is_long ? long_json() : answer->id == 2 ? "short" : "[x]") << answer->id;
    EXPECT_EQ(answer->attachment, answer->id == 1 ? "a" : "");
    ids.push_back(answer->id);
  }
  std::ranges::sort(ids);
  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(conversions_on_a_loop, 0);
  EXPECT_EQ(conversions_elsewhere - before, 4);
  const std::string wrong(100'000, 'x');
  EXPECT_EQ(ask(socket, {.data = wrong, .meta = {.content_type = 1}}).error_code, 1003);
  EXPECT_EQ(ask(socket, {.method = "Fail", .data = long_json(), .meta = {.content_type = 1}}).error_code, 100'000);
}

TEST_F(BaiduStd, LongJsonHasChecksumsAndCompression) {
  RawSocket socket = connected();
  const Buffer packed = *compress(Compression::gzip, as_bytes(long_json()));
  const Answer answer =
      ask(socket, {.data = packed.text(),
                   .attachment = "plain",
                   .meta = {.compress_type = static_cast<std::int32_t>(Compression::gzip), .content_type = 1}});
  EXPECT_EQ(answer.error_code, 0) << answer.error_text;
  EXPECT_EQ(answer.data, long_json());
  EXPECT_EQ(answer.attachment, "plain");
  EXPECT_EQ(conversions_on_a_loop, 0);
}

TEST(BaiduStdCallsMax, CountsCallsWhoseLongJsonIsConverted) {
  ServerOptions options;
  options.calls_max = 1;
  options.loop.log = no_log();
  Server server(options);
  serve_method<wait_message>(server, "test.Raw/Wait");
  serve_method<echo_message>(server, "test.Raw/Echo");
  server.enable(hawser::baidu_std());
  ASSERT_TRUE(server.start());
  const Gate gate;
  const int before = at_the_gate.load();
  RawSocket first = RawSocket::connected_to(server.address());
  first.send(bytes_of({.id = 5, .data = gate_json(), .meta = {.content_type = 1}}));
  ASSERT_TRUE(soon([&] { return at_the_gate.load() == before + 1; }));
  EXPECT_EQ(server.counters().calls_in_flight, 1U);
  RawSocket second = RawSocket::connected_to(server.address());
  second.send(bytes_of({.method = "Wait", .id = 6}));
  const std::optional<Answer> refused = receive_answer(second);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->id, 6);
  EXPECT_EQ(refused->error_code, 2004);
  EXPECT_NE(refused->error_text.find("(calls_max)"), std::string::npos) << refused->error_text;
  Gate::open();
  const std::optional<Answer> served = receive_answer(first);
  ASSERT_TRUE(served);
  EXPECT_EQ(served->id, 5);
  EXPECT_EQ(served->error_code, 0) << served->error_text;
}

class BaiduStdOneThread : public BaiduStd {
 protected:
  BaiduStdOneThread() : BaiduStd(BaiduStdOptions{}, options()) {}
  static ServerOptions options() {
    ServerOptions with;
    with.loop.offload_threads_max = 1;
    return with;
  }
};

TEST_F(BaiduStdOneThread, DeadlinesAndEndsOfConnectionsWhileLongJsonWaits) {
  const Gate gate;
  const int before = at_the_gate.load();
  RawSocket blocked = connected();
  blocked.send(bytes_of({.data = gate_json(), .meta = {.content_type = 1}}));
  ASSERT_TRUE(soon([&] { return at_the_gate.load() == before + 1; }));
  RawSocket waits = connected();
  const Answer late =
      ask(waits, {.data = long_json(), .meta = {.request = RequestMeta{.timeout_ms = 1}, .content_type = 1}});
  EXPECT_EQ(late.error_code, 1008);
  waits.send(bytes_of({.data = long_json(), .meta = {.content_type = 1}}));
  waits.close();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 2; }));
  // A conversion that a thread has begun is a call in flight until its end.
  blocked.close();
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 1; }));
  Gate::open();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
}

}  // namespace hawser::protocol::baidu_std
