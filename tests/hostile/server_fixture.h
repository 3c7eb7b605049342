#pragma once

#include <memory>
#include <string>

#include "hawser/hawser.h"
#include "tests/at_rest.h"
#include "tests/background_client.h"
#include "tests/raw_peer.h"

namespace hawser::hostile {

using namespace testing_tools;
using wire::FrameKind;

// Waits until it is cancelled.
inline Task<int> hold(Context& context) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return 0;
}
// Reports its cancellation as an error.
inline Task<Result<int>> nap(Context& context) {
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return 0;
}
// Reads items until the end. Unless `reads` is set, it reads nothing until the call is cancelled.
inline Task<std::uint64_t> collect(Context& context, bool reads, Reader<std::string> in) {
  if (!reads) {
    static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  }
  std::uint64_t bytes = 0;
  for (;;) {
    auto item = co_await in.next();
    if (!item || !*item) co_return bytes;
    bytes += (*item)->size();
  }
}
// Writes without an end.
inline Task<int> pour(Writer<std::string> out) {
  const std::string item(100, 'p');
  for (;;) {
    const Result<void> written = co_await out.write(item);
    if (!written) co_return 0;
  }
}

inline Task<Result<int>> pour_and_fail(Writer<std::string> out) {
  const Result<void> written = co_await out.write("item");
  if (!written) co_return std::unexpected(written.error());
  co_return fail(ErrorCode::invalid_argument, "the second item is missing");
}

template <auto F>
RawHeader request_of(std::uint32_t call) {
  using Facts = detail::MethodFacts<F>;
  return {.kind = FrameKind::request, .call = call, .method = Facts::id, .signature = Facts::signature};
}
// Returns the id that a client gives the first call of a slot.
inline std::uint32_t call_id(std::uint32_t slot, std::uint32_t generation = 1) { return generation << 16 | slot; }

inline Octets echo_request(std::uint32_t call, std::string_view text = "hi") {
  return message(request_of<testing_tools::echo>(call), text_body(text));
}

inline constexpr std::size_t message_bytes_max = 1 << 20;
inline constexpr std::size_t calls_max = 16;

// A server, a background client that calls it all the time, and an attacker. The calls of the background client must
// succeed, and nothing of the attack may be left behind.
class HostileClient : public ::testing::Test {
 protected:
  HostileClient() {
    ServerOptions options;
    options.message_bytes_max = message_bytes_max;
    options.calls_per_connection_max = calls_max;
    options.loop.log = no_log();
    server = std::make_unique<Server>(options);
    server->register_handler<testing_tools::echo, hold, nap, collect, pour, pour_and_fail>();
    EXPECT_TRUE(server->start());
    background_client = std::make_unique<BackgroundClient>(server->address());
    EXPECT_TRUE(background_client->sees_calls(1));
  }
  ~HostileClient() override {
    EXPECT_TRUE(background_client->sees_calls(20));
    expect_rest(*server, 1);
    background_client->stop();
    EXPECT_EQ(background_client->complaint(), "");
  }

  RawSocket connected() const { return RawSocket::connected_to(server->address()); }
  RawSocket greeted() const { return RawSocket::greeted(server->address()); }

  // Sends `bytes` after the HELLOs. The server must close the connection because of a protocol violation.
  void expect_protocol_violation(const Octets& bytes, const char* what) {
    const std::uint64_t before = server->counters().protocol_errors;
    RawSocket attacker = greeted();
    attacker.send(bytes);
    EXPECT_TRUE(attacker.closed_by_peer()) << what;
    EXPECT_TRUE(soon([&] { return server->counters().protocol_errors == before + 1; })) << what;
  }
  // Sends `bytes`. The server must answer with this error, and the connection continues.
  void expect_refused(const Octets& bytes, std::uint32_t call, ErrorCode code, std::string_view text) {
    RawSocket attacker = greeted();
    attacker.send(bytes);
    expect_error(attacker, call, code, text);
    expect_alive(attacker);
  }
  static void expect_error(RawSocket& attacker, std::uint32_t call, ErrorCode code, std::string_view text) {
    const std::optional<RawFrame> answer = attacker.receive_frame(FrameKind::error);
    ASSERT_TRUE(answer) << text;
    EXPECT_EQ(answer->header.call, call);
    EXPECT_EQ(static_cast<ErrorCode>(answer->header.method & 0xffffU), code) << answer->body;
    EXPECT_NE(answer->body.find(text), std::string::npos) << answer->body;
  }
  static void expect_alive(RawSocket& attacker) {
    const std::uint32_t call = call_id(7, 99);
    attacker.send(echo_request(call, "alive"));
    for (;;) {
      const std::optional<RawFrame> answer = attacker.receive_frame(FrameKind::response);
      ASSERT_TRUE(answer) << "the connection has ended";
      if (answer->header.call != call) continue;
      EXPECT_EQ(answer->body, text_body("alive"));
      return;
    }
  }

  std::unique_ptr<Server> server;
  std::unique_ptr<BackgroundClient> background_client;
};

}  // namespace hawser::hostile
