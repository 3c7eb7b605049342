#include "hawser/memory.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "hawser/crc32c.h"
#include "rpc/session/memory_frames.h"
#include "tests/hostile/server_fixture.h"
#include "wire/memory_body.h"

// Clients that access the memory of a server with frames made by hand.
namespace hawser::hostile {

class HostileMemory : public HostileClient {
 protected:
  static constexpr std::size_t bytes = std::size_t{1} << 20;

  HostileMemory() : buffer(std::move(*RegisteredBuffer::allocate(*server, bytes))) {
    std::memset(buffer.memory().data(), 'U', bytes);
    region = std::move(*buffer.expose(0, bytes / 2, RegionAccess::read_write));
  }

  wire::RegionId id() const {
    const RemoteRegion& handle = region.handle();
    return {handle.owner, handle.slot, handle.generation, handle.capability};
  }
  static std::string body_of(const wire::RegionId& of, std::vector<wire::MemoryRange> ranges) {
    std::string body(wire::region_id_bytes + ranges.size() * wire::memory_range_bytes, '\0');
    std::byte* at = wire::write_region_id(reinterpret_cast<std::byte*>(body.data()), of);
    for (const wire::MemoryRange& range : ranges) at = wire::write_memory_range(at, range);
    return body;
  }
  static std::string body_of(const wire::RegionId& of, const wire::AtomicOperands& operands) {
    std::string body(wire::region_id_bytes + wire::atomic_operands_bytes, '\0');
    wire::write_atomic_operands(wire::write_region_id(reinterpret_cast<std::byte*>(body.data()), of), operands);
    return body;
  }
  static Octets request(wire::MemoryAction action, std::string_view body, std::string_view payload = {},
                        std::uint32_t call = 0x10001) {
    return message({.kind = FrameKind::memory, .call = call, .method = static_cast<std::uint32_t>(action)}, body,
                   payload);
  }
  // Sends the request. The server must answer with this error, change nothing, and keep the connection.
  void expect_error_of(const Octets& sent, ErrorCode code, std::string_view text) {
    RawSocket attacker = greeted();
    attacker.send(sent);
    const std::optional<RawFrame> answer = attacker.receive_frame(FrameKind::memory_reply);
    ASSERT_TRUE(answer) << text;
    EXPECT_EQ(answer->header.call, 0x10001U);
    EXPECT_EQ(static_cast<ErrorCode>(answer->header.method), code) << answer->body;
    EXPECT_NE(answer->body.find(text), std::string::npos) << answer->body;
    EXPECT_TRUE(answer->payload.empty());
    expect_alive(attacker);
    EXPECT_EQ(as_text(buffer.memory()).find_first_not_of('U'), std::string_view::npos);
  }

  RegisteredBuffer buffer;
  ExposedRegion region;
};

using Action = wire::MemoryAction;

TEST_F(HostileMemory, AccessesThatAreRefused) {
  const std::string large(100'000, 'x');
  for (const std::uint64_t offset :
       {std::uint64_t{bytes / 2 - 99'999}, UINT64_MAX, UINT64_MAX - 99'999, std::uint64_t{1} << 63}) {
    expect_error_of(request(Action::write, body_of(id(), {{offset, 100'000}}), large), ErrorCode::invalid_argument,
                    "not within the region");
    expect_error_of(request(Action::read, body_of(id(), {{offset, 100'000}})), ErrorCode::invalid_argument,
                    "not within the region");
    expect_error_of(request(Action::fetch_add, body_of(id(), wire::AtomicOperands{offset | 7, 1, 0})),
                    ErrorCode::invalid_argument, offset == bytes / 2 - 99'999 ? "not aligned" : "not within");
  }
  wire::RegionId forged = id();
  forged.capability += 1;
  expect_error_of(request(Action::write, body_of(forged, {{0, 100'000}}), large), ErrorCode::stale_handle, "");
  forged = id();
  forged.slot = UINT32_MAX;
  expect_error_of(request(Action::read, body_of(forged, {{0, 1}})), ErrorCode::stale_handle, "");
  // Bytes that do not fit the ranges, received directly and not.
  expect_error_of(request(Action::write, body_of(id(), {{0, 99'999}}), large), ErrorCode::invalid_argument,
                  "ranges of");
  expect_error_of(request(Action::write, body_of(id(), {{0, 3}}), "ab"), ErrorCode::invalid_argument, "ranges of");
  expect_error_of(request(Action::write, body_of(id(), {{0, UINT32_MAX}, {0, 1}}), "ab"), ErrorCode::invalid_argument,
                  "not within");
  // More than one frame may carry.
  expect_error_of(request(Action::read, body_of(id(), std::vector<wire::MemoryRange>(1025, {0, 1}))),
                  ErrorCode::limit_exceeded, "1025 ranges");
  expect_error_of(request(Action::read, body_of(id(), std::vector<wire::MemoryRange>(80'000, {0, 0}))),
                  ErrorCode::limit_exceeded, "80000 ranges");
  expect_error_of(request(Action::read, body_of(id(), std::vector<wire::MemoryRange>(3, {0, bytes / 2}))),
                  ErrorCode::limit_exceeded, "a read of");
  expect_error_of(request(static_cast<Action>(200), body_of(id(), {{0, 1}})), ErrorCode::invalid_argument,
                  "action 200");
}

TEST_F(HostileMemory, FramesThatAreViolations) {
  expect_protocol_violation(request(Action::read, ""), "no body");
  expect_protocol_violation(request(Action::read, std::string(wire::region_id_bytes, '\0')), "no range");
  expect_protocol_violation(request(Action::read, body_of(id(), {{0, 1}}) + "x"), "a part of a range");
  expect_protocol_violation(request(Action::read, body_of(id(), {{0, 1}}), "payload"), "a read with a payload");
  expect_protocol_violation(request(Action::fetch_add, body_of(id(), {{0, 1}})), "an atomic without operands");
  expect_protocol_violation(message({.kind = FrameKind::memory_reply, .call = 1}), "a reply to nothing");
  expect_protocol_violation(message({.kind = FrameKind::memory_reply, .call = 0x10000}, {}, std::string(50'000, 'x')),
                            "a reply to nothing with a payload");
}

// Looks at memory into which another thread receives. The thread sanitizer must not see this read.
__attribute__((no_sanitize("thread"))) static bool begins_to_arrive(Bytes memory) {
  const volatile std::byte* const at = memory.data();
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (at[i] == std::byte{'x'}) return true;
  }
  return false;
}

// The region is revoked while the payload of a write is half here, with no thread of the server in the midst.
TEST_F(HostileMemory, ARevocationCutsAWriteThatIsArriving) {
  const std::string large(300'000, 'x');
  const Octets whole = request(Action::write, body_of(id(), {{8, 300'000}}), large);
  RawSocket attacker = greeted();
  attacker.send(first(whole, 150'000));
  EXPECT_TRUE(soon([&] { return begins_to_arrive(buffer.memory()); }));
  region.revoke();
  const std::string at_revocation(as_text(buffer.memory()));
  attacker.send(Bytes(whole).subspan(150'000));
  const std::optional<RawFrame> answer = attacker.receive_frame(FrameKind::memory_reply);
  ASSERT_TRUE(answer);
  EXPECT_EQ(static_cast<ErrorCode>(answer->header.method), ErrorCode::stale_handle);
  EXPECT_EQ(as_text(buffer.memory()), at_revocation);
  expect_alive(attacker);
}

// A peer that reads much and takes nothing is not read any more, and the others are served.
TEST_F(HostileMemory, ReadsWhoseRepliesAreNotTaken) {
  RawSocket attacker = greeted();
  const Octets one = request(Action::read, body_of(id(), {{0, bytes / 2}}));
  Octets many;
  for (int i = 0; i < 2000; ++i) many = many + one;
  for (int i = 0; i < 200; ++i) {
    if (!attacker.send(many, 100ms)) break;
  }
  EXPECT_TRUE(background_client->sees_calls(20));
  attacker.reset();
}

// A client whose server answers its accesses with frames made by hand.
class HostileOwner : public ::testing::Test {
 protected:
  static constexpr std::size_t asked = 100'000;

  // The client reads `asked` bytes into the beginning of `memory`, and `script` has the request.
  void run(std::function<void(RawSocket&, const RawFrame&)> script,
           std::function<Task<void>(Client&, const RemoteRegion&)> body) {
    RawListener listener;
    std::thread thread([&] {
      RawSocket peer = listener.accept_greeted(
          {.memory = true, .message_bytes_max = 64U << 20, .calls_max = 64, .stream_window_bytes = 1 << 18});
      const std::optional<RawFrame> request = peer.receive_frame(FrameKind::memory);
      ASSERT_TRUE(request);
      script(peer, *request);
      peer.closed_by_peer();
    });
    {
      Loop loop({.log = no_log()});
      loop.run([](Loop& on, std::string address,
                  std::function<Task<void>(Client&, const RemoteRegion&)> test) -> Task<void> {
        Client client(on, {});
        auto connected = co_await client.connect(address);
        REQUIRE_OK(connected);
        const RemoteRegion region{.bytes = 1 << 20, .readable = true, .writable = true, .owner = 1, .slot = 2};
        co_await test(client, region);
        client.close();
      }(loop, listener.address(), std::move(body)));
    }
    thread.join();
  }
  static Octets reply_to(const RawFrame& request, std::string_view payload, std::uint32_t crc = 0) {
    return message({.kind = FrameKind::memory_reply, .call = request.header.call, .signature = crc}, {}, payload);
  }

  std::string memory = std::string(2 * asked, 'U');
  MutableBytes into = std::as_writable_bytes(std::span(memory)).first(asked);
};

TEST_F(HostileOwner, RepliesOfTheWrongLengthEndTheConnection) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, asked - 1, asked + 1, 2 * asked}) {
    run([&](RawSocket& peer, const RawFrame& request) { peer.send(reply_to(request, std::string(bytes, 'x'))); },
        [&](Client& client, const RemoteRegion& region) -> Task<void> {
          auto read = co_await RemoteMemory(client).read(region, 0, into);
          EXPECT_ERROR(read, unavailable, "of the wrong length");
        });
    EXPECT_EQ(memory.find_first_not_of('U', asked), std::string::npos) << bytes;
  }
}

// A client keeps the text of an error as long as its application does.
TEST_F(HostileOwner, ALongTextOfAnErrorIsCut) {
  run(
      [&](RawSocket& peer, const RawFrame& request) {
        peer.send(message({.kind = FrameKind::memory_reply,
                           .call = request.header.call,
                           .method = static_cast<std::uint32_t>(ErrorCode::stale_handle)},
                          std::string(10 << 20, 'l')));
      },
      [&](Client& client, const RemoteRegion& region) -> Task<void> {
        auto read = co_await RemoteMemory(client).read(region, 0, into);
        EXPECT_ERROR(read, stale_handle, "lll");
        EXPECT_LE(error_of(read).size(), 2 * detail::MemoryFrames::error_text_bytes_max);
        EXPECT_TRUE(client.connected());
      });
}

// The second reply names an access that has ended.
TEST_F(HostileOwner, AReplyThatComesTwiceEndsTheConnection) {
  run(
      [&](RawSocket& peer, const RawFrame& request) {
        const Octets reply = reply_to(request, std::string(asked, 'x'));
        peer.send(reply + reply);
      },
      [&](Client& client, const RemoteRegion& region) -> Task<void> {
        auto read = co_await RemoteMemory(client).read(region, 0, into);
        EXPECT_OK(read);
        memory.assign(memory.size(), 'V');
        auto ended = co_await eventually(*Loop::current(), [&] { return !client.connected(); });
        EXPECT_TRUE(ended);
        EXPECT_EQ(memory.find_first_not_of('V'), std::string::npos) << "the second reply was received there";
      });
}

TEST_F(HostileOwner, DamagedBytesAreReported) {
  for (const bool right : {false, true}) {
    const std::string payload(asked, 'x');
    run(
        [&](RawSocket& peer, const RawFrame& request) {
          EXPECT_EQ(request.header.method & 0x100U, 0x100U);
          peer.send(reply_to(request, payload, crc32c(as_bytes(payload)) ^ (right ? 0U : 1U)));
        },
        [&](Client& client, const RemoteRegion& region) -> Task<void> {
          auto read = co_await RemoteMemory(client).read(region, 0, into, {.checksum = true});
          if (right) {
            EXPECT_OK(read);
            EXPECT_EQ(as_text(into), payload);
          } else {
            EXPECT_ERROR(read, protocol_error, "CRC32C");
          }
          EXPECT_TRUE(client.connected());
        });
  }
}

// The caller frees its memory as soon as the access has ended.
TEST_F(HostileOwner, AReplyToACancelledReadTouchesNothing) {
  for (const std::size_t already : {std::size_t{0}, std::size_t{60'000}}) {
    std::atomic<bool> ended{false};
    std::atomic<bool> begun{false};
    std::atomic<bool> over{false};
    auto owned = std::make_unique<std::string>(asked, 'U');
    run(
        [&](RawSocket& peer, const RawFrame& request) {
          const Octets reply = reply_to(request, std::string(asked, 'x'));
          peer.send(first(reply, already));
          begun = true;
          EXPECT_TRUE(soon([&] { return ended.load(); }));
          peer.send(Bytes(reply).subspan(already));
          peer.send(message({.kind = FrameKind::ping}));
          EXPECT_TRUE(peer.receive_frame(FrameKind::pong)) << "the connection goes on";
          over = true;
        },
        [&](Client& client, const RemoteRegion& region) -> Task<void> {
          std::stop_source stop;
          const std::stop_token token = stop.get_token();
          std::optional<Result<void>> outcome;
          Scope scope;
          scope.spawn([](RemoteMemory of, RemoteRegion from, MutableBytes to, const std::stop_token& with,
                         std::optional<Result<void>>& out) -> Task<void> {
            auto read = co_await of.read(from, 0, to, {.token = &with});
            out = std::move(read);
          }(RemoteMemory(client), region, std::as_writable_bytes(std::span(*owned)), token, outcome));
          Loop& on = *Loop::current();
          auto there = co_await eventually(on, [&] { return begun.load(); });
          EXPECT_TRUE(there);
          if (already != 0) {
            auto arriving = co_await eventually(on, [&] { return (*owned)[1000] == 'x'; });
            EXPECT_TRUE(arriving);
          }
          stop.request_stop();
          co_await scope.join();
          REQUIRE(outcome.has_value());
          EXPECT_ERROR(*outcome, cancelled, "");
          owned.reset();  // The address sanitizer sees a later access.
          ended = true;
          auto all_sent = co_await eventually(on, [&] { return over.load(); });
          EXPECT_TRUE(all_sent);
        });
  }
}

}  // namespace hawser::hostile
