// Messages of signed and sealed paths.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "base/random.h"
#include "rpc/server/inspector.h"
#include "tests/at_rest.h"
#include "tests/tls/fixture.h"
#include "tests/tls/road.h"
#include "transport/network_access.h"

namespace hawser {
namespace {

using namespace testing_tools;

// Things that a man in the middle does with one message of a path after the proofs.
enum class Meddling : std::uint8_t {
  none,
  flip,      // Changes a bit.
  drop,      //
  repeat,    // Passes it on twice.
  swap,      // Passes it on behind the next one.
  cut,       // Without its last byte.
  extend,    // With one more byte.
  reflect,   // Returns it to its sender, too.
  replay,    // Passes on an earlier one of the same direction instead.
  exchange,  // Passes on one with the same number of another connection instead.
};
constexpr std::size_t meddlings = 10;
constexpr const char* meddling_names[meddlings] = {"none", "flip",   "drop",    "repeat", "swap",
                                                   "cut",  "extend", "reflect", "replay", "exchange"};

std::map<std::string, int> handled_texts;
std::string handle_text(std::string text) {
  ++handled_texts[text];
  return text;
}

constexpr std::string_view marker = "a text that nobody else may read";

struct Meddler {
  void carry(Roads&, Road& road, std::size_t end, const Octets& message) {
    heard.push_back(message);
    const std::size_t number = road.sent[end];
    if (road.index == 0) earlier[end].push_back(message);
    const std::size_t to = 1 - end;
    if (road.index != 1 || end != victim || number < chosen || done || what == Meddling::none) {
      Roads::deliver(road, to, message);
      if (held && end == victim && road.index == 1) Roads::deliver(road, to, std::exchange(held, std::nullopt).value());
      return;
    }
    done = true;
    Octets changed = message;
    switch (what) {
      case Meddling::flip: {
        const std::uint64_t bit = random.below((message.size() - 8) * 8);
        changed[8 + bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
        return Roads::deliver(road, to, changed);
      }
      case Meddling::drop: return;
      case Meddling::repeat: Roads::deliver(road, to, message); return Roads::deliver(road, to, message);
      case Meddling::swap: held = message; return;
      case Meddling::cut:
      case Meddling::extend: {
        const bool longer = what == Meddling::extend;
        const std::size_t field = load_le<std::uint32_t>(changed.data() + 4) != 0 ? 4 : 0;
        store_le(changed.data() + field,
                 load_le<std::uint32_t>(changed.data() + field) + static_cast<std::uint32_t>(longer ? 1 : -1));
        if (longer) {
          changed.push_back(std::byte{0});
        } else {
          changed.pop_back();
        }
        return Roads::deliver(road, to, changed);
      }
      case Meddling::reflect: Roads::deliver(road, end, message); return Roads::deliver(road, to, message);
      case Meddling::replay: return Roads::deliver(road, to, last);
      case Meddling::exchange: return Roads::deliver(road, to, earlier[end].at(number));
      case Meddling::none: break;
    }
  }

  Random random;
  const Meddling what;
  const std::size_t victim;
  const std::size_t chosen;  // The number of the message. 0 is the proof, 1 the PING or PONG that tests the path.
  bool done = false;
  std::array<std::vector<Octets>, 2> earlier{};
  std::vector<Octets> heard{};
  std::optional<Octets> held{};
  Octets last{};
};

class TlsMessages : public TlsFixture {
 protected:
  void run(std::uint64_t seed, TlsProtection level) {
    Random random(seed);
    const auto what = static_cast<Meddling>(seed % meddlings);
    Meddler mallory{.random = Random(seed + 1),
                    .what = what,
                    .victim = static_cast<std::size_t>(random.below(2)),
                    .chosen = 2 + static_cast<std::size_t>(random.below(8))};
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + meddling_names[seed % meddlings] + " message " +
                 std::to_string(mallory.chosen) + " of side " + std::to_string(mallory.victim));
    handled_texts.clear();
    auto roads = std::make_shared<Roads>();
    roads->carry = [&](Road& road, std::size_t end, const Octets& message) {
      mallory.carry(*roads, road, end, message);
      if (road.index == 1 && end == mallory.victim && road.sent[end] >= 1) mallory.last = message;
    };
    LoopOptions loop_options;
    loop_options.log = no_log();
    Loop loop(std::make_unique<exec::SimPoller>(), loop_options);
    const auto network = std::make_shared<RoadNetwork>(seed, roads);
    // The higher level of both sides applies.
    const bool of_server = seed % 2 == 0;
    const TlsServer server_tls({.certificates = {certificate},
                                .protection = of_server ? level : TlsProtection::authenticated,
                                .reload_interval = forever,
                                .handshake_threads = 0});
    TlsClientOptions client_tls_options = client_options();
    client_tls_options.server_name = "localhost";
    client_tls_options.protection = of_server ? TlsProtection::authenticated : level;
    client_tls_options.reload_interval = forever;
    client_tls_options.handshake_threads = 0;
    const TlsClient client_tls(client_tls_options);
    ServerOptions server_options;
    server_options.listen = "server:0";
    server_options.transports.order = {"road"};
    server_options.security = server_tls;
    Server served(loop, transport::over(network, server_options));
    served.register_handler<handle_text>();
    ClientOptions with;
    with.transports.order = {"road"};
    with.transports.retry_min = std::chrono::hours(1);
    with.call_timeout = 20s;
    with.security = client_tls;
    std::map<std::string, int> sent;
    const auto text_of = [&](const std::string& who, int number) {
      const std::size_t sizes[] = {0, 300, 5'000, 9'000, 70'000, 300'000};
      std::string text = std::string(marker) + ", " + who + " " + std::to_string(number) + " ";
      text.append(sizes[random.below(std::size(sizes))], '.');
      return text;
    };
    const auto body = [&]() -> Task<void> {
      REQUIRE_OK(served.start());
      Client honest(loop, transport::over(network, with));
      Client attacked(loop, transport::over(network, with));
      {
        auto connected = co_await honest.connect(served.address());
        REQUIRE_OK(connected);
      }
      {
        auto connected = co_await attacked.connect(served.address());
        REQUIRE_OK(connected);
        EXPECT_EQ(attacked.transport(), "road");
      }
      auto asking = rpc::Inspector::connections(served, loop, {}, 100);
      for (const rpc::ConnectionReport& one : (co_await std::move(asking)).rows) {
        EXPECT_EQ(one.protection, level == TlsProtection::sealed_messages ? "sealed" : "signed");
      }
      int failed = 0;
      for (int number = 0; number < 16; ++number) {
        for (Client* const client : {&honest, &attacked}) {
          const std::string text = text_of(client == &honest ? "honest" : "attacked", number);
          ++sent[text];
          auto reply = co_await client->call<handle_text>(text);
          if (reply) {
            EXPECT_EQ(*reply, text);
            continue;
          }
          EXPECT_EQ(client, &attacked) << error_of(reply);
          ++failed;
          auto connected = co_await client->connect(served.address());
          REQUIRE_OK(connected);
        }
      }
      const auto refused = server_tls.counters().path_messages_refused + client_tls.counters().path_messages_refused;
      EXPECT_EQ(honest.transport(), "road");
      if (what == Meddling::none) {
        EXPECT_EQ(refused, 0U);
        EXPECT_EQ(failed, 0);
        EXPECT_EQ(attacked.transport(), "road");
      } else {
        EXPECT_TRUE(mallory.done);
        EXPECT_GE(refused, 1U);
        // A client that has found a message which is not the server's avoids the path for a while.
        if (client_tls.counters().path_messages_refused != 0) {
          EXPECT_EQ(attacked.transport(), "tls");
        }
      }
      honest.close();
      attacked.close();
      co_await served.shut_down(1s);
      co_await reach_rest(loop, served);
    };
    loop.run(body());
    // Nothing was forged, and nothing was handled twice.
    for (const auto& [text, times] : handled_texts) {
      EXPECT_EQ(times, 1) << text.substr(0, 60);
      EXPECT_EQ(sent.count(text), 1U) << text.substr(0, 60);
    }
    const bool readable = std::any_of(mallory.heard.begin(), mallory.heard.end(), [](const Octets& one) {
      return !std::ranges::search(one, as_bytes(marker)).empty();
    });
    EXPECT_EQ(readable, level == TlsProtection::signed_messages);
  }
  const TlsCertificate certificate = authority.issue("server");
};

TEST_F(TlsMessages, SignedOnesCannotBeMeddledWith) {
  for (std::uint64_t seed = 0; seed < meddlings * 5 && !HasFailure(); ++seed) run(seed, TlsProtection::signed_messages);
}

TEST_F(TlsMessages, SealedOnesCannotBeMeddledWithOrRead) {
  for (std::uint64_t seed = 0; seed < meddlings * 5 && !HasFailure(); ++seed) run(seed, TlsProtection::sealed_messages);
}

// Over shared memory, with payloads of each size, and with memory that the server exposes.
TEST_F(TlsMessages, CarryEverythingOverSharedMemory) {
  for (const TlsProtection level : {TlsProtection::signed_messages, TlsProtection::sealed_messages}) {
    tls_options.protection = level;
    start();
    for (const std::size_t size : {0, 1, 4'000, 4'096, 100'000, 2'000'000, 20'000'000}) {
      ClientOptions with;
      with.transports.required = "shm";
      EXPECT_EQ(call(std::string(size, 'x'), TlsClient(client_options()), with), "ok") << size;
      EXPECT_EQ(used_transport, "shm");
    }
    EXPECT_EQ(security->counters().path_messages_refused, 0U);
    EXPECT_EQ(security->counters().paths_proved, 7U);
    server.reset();
  }
}

}  // namespace
}  // namespace hawser
