#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "base/little_endian.h"
#include "exec/sim_poller.h"
#include "hawser/hawser.h"
#include "transport/network.h"
#include "transport/network_access.h"
#include "wire/frame.h"
#include "wire/hello.h"

// A whole server in virtual time, whose only client sends the bytes of the input. The server must not crash or stall,
// and must keep nothing after the client has gone. Input: u8 mode | bytes. Mode bit 0: a valid HELLO is sent first. Bit
// 1: the bytes are messages, each u8 bytes of the head | u8 sixteenths of KiB of payload | head. The program adds the
// prefix, so that lengths need not be guessed. Bit 2: the methods of requests are replaced by existing ones. Bits 3 to
// 7: largest number of bytes that arrive at a time, minus one; 31 means no limit.
namespace hawser {
namespace {

void expect(bool condition, std::source_location where = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "line %u: not as expected\n", static_cast<unsigned>(where.line()));
  std::abort();
}

std::string_view echo(std::string_view text) { return text; }
std::uint64_t reflect(Context& context, std::vector<std::string> lines) {
  context.set_attachment(Buffer::copy_of(context.attachment()));
  for (auto& [key, value] : context.metadata().copy()) context.add_metadata(key, value);
  return lines.size();
}
Task<std::uint64_t> hold(Context& context) {
  static_cast<void>(co_await context.loop().sleep(std::chrono::hours(1), context.token()));
  co_return 1;
}
Task<std::uint64_t> converse(Reader<std::string> in, Writer<std::string> out) {
  for (std::uint64_t count = 0;; ++count) {
    auto item = co_await in.next();
    if (!item || !*item) co_return count;
    const Result<void> written = co_await out.write(**item);
    if (!written) co_return count;
  }
}

// The server's end of the one connection.
struct Wire {
  transport::StreamSink* sink = nullptr;  // Null after the stream has been destroyed.
  bool paused = false;
};
class FuzzStream final : public transport::Stream {
 public:
  explicit FuzzStream(Wire& wire) noexcept : wire_(wire) {}
  ~FuzzStream() override { wire_.sink = nullptr; }
  void start(Loop&, transport::StreamSink& sink) override { wire_.sink = &sink; }
  void set_sink(transport::StreamSink& sink) noexcept override { wire_.sink = &sink; }
  std::size_t send(std::span<const ConstBuffer> pieces) override {
    // All bytes are read, so that a piece that was freed is detected.
    std::size_t taken = 0;
    unsigned sum = 0;
    for (const ConstBuffer& piece : pieces) {
      for (std::size_t i = 0; i < piece.size; ++i) sum += static_cast<unsigned>(piece.data[i]);
      taken += piece.size;
    }
    sum_ = sum;
    return taken;
  }
  void pause() noexcept override { wire_.paused = true; }
  void resume() override { wire_.paused = false; }
  void finish() noexcept override {}
  std::string_view transport() const noexcept override { return "fuzz"; }
  std::string peer() const override { return "attacker:1"; }
  std::string local() const override { return "server:1"; }

 private:
  Wire& wire_;
  volatile unsigned sum_ = 0;
};

class FuzzNetwork final : public transport::Network {
 public:
  Result<std::unique_ptr<transport::Listener>> listen(Loop&, std::string_view, transport::AcceptSink& sink) override {
    struct Nowhere final : transport::Listener {
      std::string address() const override { return "server:1"; }
    };
    accepting = &sink;
    return std::make_unique<Nowhere>();
  }
  Task<Result<std::unique_ptr<transport::Stream>>> connect(Loop&, std::string, Duration) override {
    co_return fail(ErrorCode::unavailable, "nobody");
  }
  transport::AcceptSink* accepting = nullptr;
};

template <auto F>
void set_method(std::byte* head) {
  store_le(head + 8, detail::MethodFacts<F>::id);
  store_le(head + 12, detail::MethodFacts<F>::signature);
}

// Returns the bytes that the attacker sends.
std::vector<std::byte> script(Bytes input, unsigned mode) {
  std::vector<std::byte> out;
  if ((mode & 1) != 0) out = wire::encode_hello({.message_bytes_max = 64 * 1024, .stream_window_bytes = 1'000});
  if ((mode & 2) == 0) {
    out.insert(out.end(), input.begin(), input.end());
    return out;
  }
  while (input.size() >= 2) {
    const std::size_t head_bytes = std::min<std::size_t>(static_cast<std::size_t>(input[0]), input.size() - 2);
    const std::size_t payload_bytes = static_cast<std::size_t>(input[1]) * 64;
    std::vector<std::byte> message(8 + head_bytes + payload_bytes);
    store_le(message.data(), static_cast<std::uint32_t>(head_bytes));
    store_le(message.data() + 4, static_cast<std::uint32_t>(payload_bytes));
    std::byte* const head = message.data() + 8;
    if (head_bytes != 0) std::memcpy(head, input.data() + 2, head_bytes);
    if ((mode & 4) != 0 && head_bytes >= wire::header_bytes) {
      if (static_cast<wire::FrameKind>(head[0]) == wire::FrameKind::request) {
        constexpr void (*methods[])(std::byte*) = {set_method<echo>, set_method<reflect>, set_method<hold>,
                                                   set_method<converse>};
        methods[static_cast<std::size_t>(head[8]) % std::size(methods)](head);
      }
    }
    out.insert(out.end(), message.begin(), message.end());
    input = input.subspan(2 + head_bytes);
  }
  return out;
}

Task<void> attack(Loop& loop, Bytes input, unsigned mode) {
  auto network = std::make_shared<FuzzNetwork>();
  Server server(loop, over(network, ServerOptions{.calls_per_connection_max = 8,
                                                  .message_bytes_max = 64 * 1024,
                                                  .receive_bytes_max = 64 * 1024,
                                                  .stream_window_bytes = 1'000,
                                                  .ping_interval = forever}));
  server.register_handler<echo, reflect, hold, converse>();
  expect(server.start().has_value());
  Wire wire;
  network->accepting->accepted(std::make_unique<FuzzStream>(wire));
  const std::vector<std::byte> bytes = script(input, mode);
  const std::size_t step = mode >> 3 == 31 ? bytes.size() : (mode >> 3) + 1;
  Bytes rest = bytes;
  while (!rest.empty() && wire.sink != nullptr) {
    for (int i = 0; i < 256 && !rest.empty() && wire.sink != nullptr && !wire.paused; ++i) {
      const MutableBytes space = wire.sink->receive_space();
      expect(!space.empty());
      const std::size_t size = std::min({rest.size(), step, space.size()});
      std::memcpy(space.data(), rest.data(), size);
      rest = rest.subspan(size);
      wire.sink->received(size);
    }
    const bool stuck = wire.paused;
    co_await loop.sleep(std::chrono::milliseconds(1));
    if (stuck && wire.paused) break;
  }
  co_await loop.sleep(std::chrono::milliseconds(1));
  if (wire.sink != nullptr) wire.sink->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "gone"));
  co_await loop.sleep(std::chrono::milliseconds(1));
  expect(wire.sink == nullptr);
  const ServerCounters counters = server.counters();
  expect(counters.connections_open == 0);
  expect(counters.calls_in_flight == 0);
}

}  // namespace
}  // namespace hawser

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size > 4'096) return 0;
  hawser::LoopOptions options;
  options.log = hawser::no_log();
  hawser::Loop loop(std::make_unique<hawser::exec::SimPoller>(), options);
  loop.run(hawser::attack(loop, std::as_bytes(std::span(data + 1, size - 1)), data[0]));
  return 0;
}
