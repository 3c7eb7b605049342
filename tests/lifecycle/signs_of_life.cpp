#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "tests/lifecycle/virtual_time.h"
#include "tests/raw_peer.h"

// PINGs to clients that are silent, quiet or slow, in virtual time.
namespace hawser::lifecycle {
namespace {

template <auto F>
RawHeader first_request_of() {
  using Facts = detail::MethodFacts<F>;
  return {.kind = wire::FrameKind::request, .call = 1U << 16, .method = Facts::id, .signature = Facts::signature};
}

// Returns how often `what` has been received.
std::size_t occurrences(const RawStream& stream, const Octets& what) {
  std::size_t count = 0;
  for (auto at = stream.got().begin();; ++count, ++at) {
    at = std::search(at, stream.got().end(), what.begin(), what.end());
    if (at == stream.got().end()) return count;
  }
}

Octets request_of_an_hour() {
  std::string seconds(4, '\0');
  store_le(reinterpret_cast<std::byte*>(seconds.data()), std::uint32_t{3600});
  return message(first_request_of<work>(), seconds);
}

// A client whose machine has failed: nothing arrives any more, not even the end of the connection. It may have stopped
// in the middle of a frame.
TEST_F(VirtualTime, ASilentClientIsDropped) {
  auto server = make_server();
  server->register_handler<work>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    for (const bool in_frame : {false, true}) {
      auto silent = co_await connect_raw(loop, *network, server->address());
      REQUIRE(silent);
      silent->send(wire::encode_hello(usual_hello()) + request_of_an_hour());
      auto taken = co_await eventually(loop, [&] { return server->counters().calls_in_flight == 1; });
      EXPECT_TRUE(taken);
      if (in_frame) silent->send(first(request_of_an_hour(), 20));
      auto asked = co_await eventually(
          loop, [&] { return occurrences(*silent, message({.kind = wire::FrameKind::ping})) != 0; });
      EXPECT_TRUE(asked);
      auto dropped = co_await eventually(loop, [&] { return silent->ended(); });
      EXPECT_TRUE(dropped);
      auto rests = co_await eventually(loop, [&] { return server->counters().calls_in_flight == 0; });
      EXPECT_TRUE(rests);
      EXPECT_EQ(server->counters().connections_open, 0U);
    }
  });
}

// A client that answers is not dropped, however long its calls take.
TEST_F(VirtualTime, AQuietClientThatAnswersStays) {
  ServerOptions options;
  options.ping_interval = 1s;
  auto server = make_server(std::move(options));
  server->register_handler<work>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    auto quiet = co_await connect_raw(loop, *network, server->address());
    REQUIRE(quiet);
    quiet->send(wire::encode_hello(usual_hello()) + request_of_an_hour());
    for (std::size_t i = 1; i <= 5; ++i) {
      auto asked =
          co_await eventually(loop, [&] { return occurrences(*quiet, message({.kind = wire::FrameKind::ping})) == i; });
      EXPECT_TRUE(asked) << i;
      quiet->send(message({.kind = wire::FrameKind::pong}));
    }
    EXPECT_EQ(server->counters().calls_in_flight, 1U);
  });
}

// A message that takes longer than several ping intervals shows during all this time that the peer lives.
TEST_F(VirtualTime, SlowTransfersAreASignOfLife) {
  ServerOptions options;
  options.ping_interval = 1s;
  auto server = make_server(std::move(options));
  server->register_handler<echo>();
  run([&]() -> Task<void> {
    REQUIRE_OK(server->start());
    for (const bool large : {false, true}) {
      auto slow = co_await connect_raw(loop, *network, server->address());
      REQUIRE(slow);
      slow->send(wire::encode_hello(usual_hello()));
      const std::string text = text_of(large ? 60'000 : 600);
      std::string count(4, '\0');
      store_le(reinterpret_cast<std::byte*>(count.data()),
               static_cast<std::uint32_t>(text.size() | (large ? 1U << 31 : 0)));
      const Octets request =
          large ? message(first_request_of<echo>(), count, text) : message(first_request_of<echo>(), count + text);
      // In 20 parts with pauses between them: four times the interval in total.
      const std::size_t part = request.size() / 20 + 1;
      for (std::size_t at = 0; at < request.size(); at += part) {
        slow->send(Bytes(request).subspan(at, std::min(part, request.size() - at)));
        co_await loop.sleep(200ms);
      }
      auto answered = co_await eventually(loop, [&] { return occurrences(*slow, octets(text)) == 1; });
      EXPECT_TRUE(answered) << large;
    }
  });
}

}  // namespace
}  // namespace hawser::lifecycle
