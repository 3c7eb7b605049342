#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/grpc_client.h"
#include "hawser/hawser.h"
#include "hawser/scope.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/grpc/raw_service.h"
#include "tests/raw_peer.h"
#include "tests/testing.h"

// GrpcClient against servers that send frames of HTTP/2 at random, from a seed.
namespace hawser {
namespace random_servers {

using testing_tools::Raw;
Result<Raw> one(Raw);
Task<Result<void>> many(Raw, Writer<Raw>);
Task<Result<Raw>> sum(Reader<Raw>);
Task<Result<void>> both(Reader<Raw>, Writer<Raw>);

}  // namespace random_servers

template <>
inline constexpr std::string_view method_name_override<&random_servers::one> = "test.Random/One";
template <>
inline constexpr std::string_view method_name_override<&random_servers::many> = "test.Random/Many";
template <>
inline constexpr std::string_view method_name_override<&random_servers::sum> = "test.Random/Sum";
template <>
inline constexpr std::string_view method_name_override<&random_servers::both> = "test.Random/Both";

namespace random_servers {

using namespace testing_tools;
namespace h2 = protocol::grpc::testing;
using Random = std::mt19937;

std::size_t below(Random& random, std::size_t end) { return random() % end; }
bool one_in(Random& random, std::size_t n) { return below(random, n) == 0; }

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

// One connection of the server.
class RandomServer {
 public:
  RandomServer(RawSocket& socket, Random& random) : socket_(socket), random_(random) {}

  void serve(const std::atomic<bool>& over) {
    static constexpr std::uint32_t streams[] = {0, 1, 5, 100, 1000};
    static constexpr std::uint32_t windows[] = {0, 1, 1000, 65'535, 1 << 20};
    std::string settings;
    if (one_in(random_, 2)) settings += std::string("\0\3", 2) + number(streams[below(random_, 5)]);
    if (one_in(random_, 2)) settings += std::string("\0\4", 2) + number(windows[below(random_, 5)]);
    if (!send(h2::frame(4, 0, 0, settings) + h2::frame(4, 1, 0, {}))) return;
    for (std::size_t frames = 20 + below(random_, 300); frames != 0 && !over.load(); --frames) {
      if (!receive() || !send(next())) return;
      if (one_in(random_, 10)) std::this_thread::sleep_for(100us);
    }
    if (one_in(random_, 2)) socket_.reset();
  }
  // Serves the settings, waits for a call, sets `received`, and resets the call after that time.
  void reset_a_call(std::chrono::milliseconds after, std::atomic<bool>& received) {
    if (!send(h2::frame(4, 0, 0, {}) + h2::frame(4, 1, 0, {}))) return;
    while (highest_ == 0) {
      if (!receive()) return;
    }
    received = true;
    std::this_thread::sleep_for(after);
    constexpr std::uint32_t cancel = 8;
    send(h2::frame(3, 0, highest_, number(cancel)));
  }

 private:
  bool send(const std::string& bytes) { return socket_.send(as_bytes(bytes), 50ms); }
  // Takes what has arrived, to know the streams of the client.
  bool receive() {
    pollfd ready{socket_.fd(), POLLIN, 0};
    if (::poll(&ready, 1, highest_ == 0 ? 20 : 0) <= 0) return true;
    std::string bytes(65'536, '\0');
    const ssize_t size = ::recv(socket_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size <= 0) return size < 0 && (errno == EAGAIN || errno == EINTR);
    arrived_.append(bytes, 0, static_cast<std::size_t>(size));
    while (arrived_.size() >= skip_ + 9) {
      const auto byte = [&](std::size_t at) { return std::uint32_t{static_cast<std::uint8_t>(arrived_[skip_ + at])}; };
      const std::size_t length = (byte(0) << 16) | (byte(1) << 8) | byte(2);
      const std::uint32_t id = (byte(7) << 8) | byte(8);
      if (byte(3) == 1) {
        highest_ = id;
        open_[id] = false;
      }
      if (byte(3) == 3) open_.erase(id);
      arrived_.erase(0, skip_ + 9);
      skip_ = length;
    }
    return true;
  }
  // A stream for the next frame, which is wrong in some cases.
  std::uint32_t stream() {
    if (one_in(random_, 1000)) return static_cast<std::uint32_t>(below(random_, 40));
    if (open_.empty()) return 0;
    auto found = open_.begin();
    std::advance(found, static_cast<std::ptrdiff_t>(below(random_, open_.size())));
    return found->first;
  }
  std::string message() {
    std::string text(below(random_, one_in(random_, 10) ? 100'000 : 300), 'm');
    if (one_in(random_, 40)) text.assign(5'000'000 % (text.size() + 1), 'x');
    std::string head(1, one_in(random_, 10) ? static_cast<char>(below(random_, 3)) : '\0');
    head +=
        number(one_in(random_, 40) ? static_cast<std::uint32_t>(random_()) : static_cast<std::uint32_t>(text.size()));
    return head + text;
  }
  std::string data(std::uint32_t id, std::string text, bool end) {
    std::string out;
    do {
      const std::size_t size = std::min<std::size_t>(text.size(), one_in(random_, 4) ? 1 + below(random_, 50) : 16'384);
      const std::string part = text.substr(0, size);
      text.erase(0, size);
      out += h2::frame(0, end && text.empty() ? 1 : 0, id, part);
    } while (!text.empty() && out.size() < 200'000);
    return out;
  }
  std::string head(std::uint32_t id) {
    std::vector<protocol::grpc::GrpcMachine::Field> fields = {{":status", one_in(random_, 10) ? "503" : "200"}};
    if (!one_in(random_, 10)) fields.emplace_back("content-type", "application/grpc");
    if (one_in(random_, 6)) fields.emplace_back("grpc-encoding", one_in(random_, 2) ? "gzip" : "zstd");
    if (one_in(random_, 6)) fields.emplace_back("x-name-bin", one_in(random_, 2) ? "AAA" : "!");
    if (one_in(random_, 20)) fields.emplace_back("content-length", "3");
    return h2::frame(1, 4, id, h2::hpack(fields));
  }
  std::string trailers(std::uint32_t id) {
    static constexpr std::string_view statuses[] = {"0", "0", "5", "1", "x", "99999999999"};
    std::vector<protocol::grpc::GrpcMachine::Field> fields = {{"grpc-status", statuses[below(random_, 6)]}};
    if (one_in(random_, 3)) fields.emplace_back("grpc-message", "%C3%A4%zz%");
    if (one_in(random_, 6)) fields.emplace_back("grpc-retry-pushback-ms", "-");
    if (one_in(random_, 6)) fields.emplace_back("grpc-status-details-bin", "AAECAw");
    return h2::frame(1, 5, id, h2::hpack(fields));
  }
  // The next frames of a call.
  std::string answer(std::uint32_t id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return one_in(random_, 2) ? head(id) : data(id, message(), false);
    std::string out;
    if (!std::exchange(found->second, true)) out += one_in(random_, 200) ? std::string() : head(id);
    for (std::size_t messages = below(random_, 3); messages != 0; --messages) out += data(id, message(), false);
    if (one_in(random_, 2)) return out;
    open_.erase(found);
    if (one_in(random_, 20)) return out + data(id, message(), true);
    if (one_in(random_, 8)) return out + reset(id);
    out += trailers(id);
    return one_in(random_, 4) ? out + h2::frame(3, 0, id, number(0)) : out;
  }
  std::string reset(std::uint32_t id) {
    static constexpr std::uint32_t codes[] = {0, 2, 7, 8, 11};
    return h2::frame(3, 0, id, number(codes[below(random_, 5)]));
  }
  std::string next() {
    const std::uint32_t id = stream();
    switch (below(random_, 24)) {
      case 0:
      case 1: return h2::frame(8, 0, id == 0 || one_in(random_, 2) ? 0 : id, number(one_in(random_, 3) ? 1 : 100'000));
      case 2: return h2::frame(6, one_in(random_, 3) ? 1 : 0, 0, "12345678");
      case 3: return id == 0 ? std::string() : h2::frame(1, 4, id, h2::hpack({{":status", "103"}}));
      case 4: {
        const std::uint32_t streams = static_cast<std::uint32_t>(below(random_, 9));
        return h2::frame(4, 0, 0, std::string("\0\3", 2) + number(streams));
      }
      case 5: return h2::frame(4, 0, 0, std::string("\0\4", 2) + number(one_in(random_, 2) ? 0 : 200'000));
      case 6:
        if (!one_in(random_, 8)) return {};
        return h2::frame(7, 0, 0, number(one_in(random_, 2) ? 0x7FFF'FFFF : id) + number(0) + "text");
      case 7:
        if (!one_in(random_, 60)) return {};
        return h2::frame(static_cast<std::uint8_t>(below(random_, 12)), static_cast<std::uint8_t>(random_()), id,
                         std::string(below(random_, 40), static_cast<char>(random_())));
      default: return id == 0 ? std::string() : answer(id);
    }
  }

  RawSocket& socket_;
  Random& random_;
  std::string arrived_;
  std::size_t skip_ = h2::preface.size();
  std::uint32_t highest_ = 0;           // The stream that the client has opened last.
  std::map<std::uint32_t, bool> open_;  // The streams that have not ended, and whether their responses have begun.
};

CallOptions options_of(Random& random, const std::stop_source& stop) {
  CallOptions options{.timeout = std::chrono::milliseconds(1 + below(random, 60)), .token = stop.get_token()};
  if (one_in(random, 4)) options.metadata.emplace_back("x-name-bin", std::string("\0\1", 2));
  return options;
}

template <class Call>
Task<void> read_all(Call& call, Random& random) {
  auto reader = call.reader();
  for (;;) {
    auto item = co_await reader.next();
    if (!item || !*item) co_return;
    if (!one_in(random, 4)) continue;
    co_await Loop::current()->sleep(std::chrono::microseconds(below(random, 2000)));
  }
}
template <class Call>
Task<void> write_some(Call& call, Random& random) {
  auto writer = call.writer();
  for (std::size_t items = below(random, 20); items != 0; --items) {
    const Raw item(std::string(below(random, one_in(random, 4) ? 200'000 : 100), 'i'));
    auto written = co_await writer.write(item);
    if (!written) co_return;
  }
  writer.end();
}

Task<void> call_at_random(GrpcClient& client, Random& random, int& ended) {
  const std::stop_source stop;
  const CallOptions options = options_of(random, stop);
  switch (below(random, 4)) {
    case 0: {
      const Raw message(std::string(below(random, one_in(random, 4) ? 300'000 : 100), 'r'));
      auto reply = co_await client.call<&one>(options, message);
      break;
    }
    case 1: {
      const Raw message(std::string("m"));
      auto call = co_await client.open<&many>(options, message);
      if (!call) break;
      co_await read_all(*call, random);
      if (one_in(random, 2)) break;
      auto finished = co_await call->finish();
      break;
    }
    case 2: {
      auto call = co_await client.open<&sum>(options);
      if (!call) break;
      co_await write_some(*call, random);
      auto finished = co_await call->finish();
      break;
    }
    default: {
      auto call = co_await client.open<&both>(options);
      if (!call) break;
      Scope scope;
      scope.spawn(read_all(*call, random));
      scope.spawn(write_some(*call, random));
      if (one_in(random, 3)) {
        co_await Loop::current()->sleep(std::chrono::microseconds(below(random, 3000)));
        break;
      }
      co_await scope.join();
      break;
    }
  }
  ++ended;
}

Task<void> use(Loop& loop, Random& random, std::string address, int& begun, int& ended) {
  for (int round = 0; round < 12; ++round) {
    GrpcClientOptions options{.calls_in_flight_max = 64, .message_bytes_max = 200'000, .stream_window_bytes = 70'000};
    if (one_in(random, 2)) options.compression = GrpcCompression::gzip;
    auto client = std::make_unique<GrpcClient>(loop, options);
    auto connected = co_await client->connect(address);
    if (!connected) continue;
    Scope scope;
    const std::size_t calls = 1 + below(random, 20);
    for (std::size_t i = 0; i < calls; ++i) {
      ++begun;
      scope.spawn(call_at_random(*client, random, ended));
      if (!one_in(random, 3)) continue;
      co_await loop.sleep(std::chrono::microseconds(below(random, 500)));
    }
    switch (below(random, 4)) {
      case 0:  // Calls are destroyed.
        scope.clear();
        begun = ended;
        break;
      case 1:  // The client is destroyed while calls wait.
        client.reset();
        break;
      default: break;
    }
    co_await scope.join();
  }
}

// The calls end, and nothing that they used is used afterwards: the sanitizers see the rest. HAWSER_GRPC_SEEDS: the
// number of runs.
TEST(GrpcRandom, ServersThatAnswerAtRandom) {
  const char* const given = std::getenv("HAWSER_GRPC_SEEDS");
  const unsigned seeds = given == nullptr ? 3 : static_cast<unsigned>(std::atoi(given));
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::atomic<bool> over{false};
    RawListener listener;
    std::thread serving([&] {
      Random random(seed);
      while (!over.load()) {
        RawSocket socket = listener.accept_within(5ms);
        if (socket.fd() >= 0) RandomServer(socket, random).serve(over);
      }
    });
    Random random(seed + 1000);
    int begun = 0;
    int ended = 0;
    Loop loop({.log = [](LogLevel, std::string_view, std::string_view) {}});
    loop.run(use(loop, random, listener.address(), begun, ended));
    over = true;
    serving.join();
    EXPECT_EQ(ended, begun);
  }
}

// A server resets a call whose deadline has passed. The client may receive that before its own timer runs.
TEST(GrpcResets, AfterTheDeadlineTellThatItHasPassed) {
  std::atomic<bool> received{false};
  std::atomic<bool> reset{false};
  std::atomic<bool> over{false};
  RawListener listener;
  std::thread serving([&] {
    Random random(1);
    RawSocket socket = listener.accept();
    RandomServer(socket, random).reset_a_call(60ms, received);
    reset = true;
    while (!over) std::this_thread::sleep_for(1ms);
  });
  Loop loop({.log = [](LogLevel, std::string_view, std::string_view) {}});
  loop.run([](Loop& on, std::string address, const std::atomic<bool>& arrived,
              const std::atomic<bool>& was_reset) -> Task<void> {
    GrpcClient client(on, {});
    auto connected = co_await client.connect(address);
    EXPECT_TRUE(connected);
    Result<Raw> reply = fail(ErrorCode::internal, "the call has not ended");
    Scope scope;
    bool ended = false;
    const auto call = [](GrpcClient& to, Result<Raw>& into, bool& done) -> Task<void> {
      const Raw message(std::string("m"));
      const CallOptions options{.timeout = 30ms};
      into = co_await to.call<&one>(options, message);
      done = true;
    };
    scope.spawn(call(client, reply, ended));
    while (!arrived && !ended) {
      co_await on.sleep(1ms);
    }
    // The loop is busy until the deadline has passed and the frame has arrived.
    while (!was_reset && !ended) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(10ms);
    co_await scope.join();
    EXPECT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ErrorCode::deadline_exceeded) << reply.error().text;
  }(loop, listener.address(), received, reset));
  over = true;
  serving.join();
}

}  // namespace random_servers
}  // namespace hawser
