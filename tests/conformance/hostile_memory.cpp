#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/detail/context_access.h"
#include "hawser/memory.h"
#include "rpc/client/client_access.h"
#include "rpc/client/client_session.h"
#include "rpc/server/server_session.h"
#include "tests/conformance/backend.h"
#include "wire/memory_body.h"

// Peers that break the rules of access to memory by frames, over every transport. They share an honest handshake.
namespace hawser::conformance {

namespace {

using Random = std::mt19937_64;
using Action = wire::MemoryAction;

constexpr std::size_t region_bytes = 200'000;
constexpr std::size_t guard_bytes = 4096;

std::size_t below(Random& random, std::size_t limit) { return random() % limit; }

// Sends a frame on the connection behind the back of its session.
template <class Frame>
void inject(transport::Connection& connection, const Frame& frame, std::string_view body, std::string_view payload) {
  std::byte* const head = connection.reserve(wire::header_bytes + body.size());
  if (head == nullptr) return;
  wire::encode(head, frame);
  std::memcpy(head + wire::header_bytes, body.data(), body.size());
  const ConstBuffer piece{reinterpret_cast<const std::byte*>(payload.data()), payload.size()};
  connection.commit(wire::header_bytes + body.size(), std::span(&piece, payload.empty() ? 0 : 1), nullptr);
}

std::string forged_body(Random& random, const RemoteRegion& region, std::vector<wire::MemoryRange> ranges) {
  wire::RegionId id{region.owner, region.slot, region.generation, region.capability};
  if (below(random, 8) == 0) id.capability ^= std::uint64_t{1} << below(random, 64);
  if (below(random, 8) == 0) id.slot = static_cast<std::uint32_t>(random());
  std::string body(wire::region_id_bytes + ranges.size() * wire::memory_range_bytes, '\0');
  std::byte* at = wire::write_region_id(reinterpret_cast<std::byte*>(body.data()), id);
  for (const wire::MemoryRange& range : ranges) at = wire::write_memory_range(at, range);
  return body;
}

std::uint64_t forged_offset(Random& random) {
  constexpr std::uint64_t ends[] = {
      0, 1, region_bytes - 1, region_bytes, region_bytes + 1, UINT64_MAX, UINT64_MAX - 7, std::uint64_t{1} << 63};
  return below(random, 3) == 0 ? ends[below(random, std::size(ends))] : below(random, region_bytes);
}

std::uint32_t forged_length(Random& random) {
  constexpr std::uint32_t ends[] = {0, 1, 8, 131'072, UINT32_MAX, UINT32_MAX - 1, 1U << 31};
  return below(random, 3) == 0 ? ends[below(random, std::size(ends))] : static_cast<std::uint32_t>(below(random, 3000));
}

void inject_request(transport::Connection& connection, Random& random, const RemoteRegion& region) {
  const auto action = static_cast<std::uint32_t>(below(random, 5));
  std::vector<wire::MemoryRange> ranges(below(random, 4) == 0 ? below(random, 1100) : 1 + below(random, 3));
  std::uint64_t bytes = 0;
  for (wire::MemoryRange& range : ranges) {
    range = {forged_offset(random), forged_length(random)};
    bytes += range.bytes;
  }
  std::string body = forged_body(random, region, std::move(ranges));
  if (action >= 2 && below(random, 2) == 0) {
    body.resize(wire::region_id_bytes + wire::atomic_operands_bytes, 'x');
    store_le(reinterpret_cast<std::byte*>(body.data()) + wire::region_id_bytes, forged_offset(random));
  }
  if (below(random, 20) == 0) body.resize(below(random, body.size() + 1));
  std::string payload;
  if (action == 1)
    payload.assign(below(random, 4) == 0 ? below(random, 300'000) : std::min<std::uint64_t>(bytes, 300'000), 'x');
  inject(connection,
         wire::MemoryFrame{.call = wire::CallId::from_number(static_cast<std::uint32_t>(random())),
                           .action = action,
                           .wants_crc = below(random, 2) == 0},
         body, payload);
}

}  // namespace

// A server whose memory lies between guards, and which lies to its clients.
class Liar {
 public:
  explicit Liar(const Server& server)
      : buffer_(std::move(*RegisteredBuffer::allocate(server, region_bytes + 2 * guard_bytes))) {
    std::memset(buffer_.memory().data(), 'U', buffer_.size());
  }
  RemoteRegion expose(RegionAccess access) {
    region_ = std::move(*buffer_.expose(guard_bytes, region_bytes, access));
    RemoteRegion handle = region_.handle();
    handle.places = {};  // Frames, also over RDMA.
    return handle;
  }
  void revoke() { region_.revoke(); }
  bool unchanged(std::size_t offset, std::size_t bytes) {
    return as_text(buffer_.memory().subspan(offset, bytes)).find_first_not_of('U') == std::string_view::npos;
  }
  // Answers accesses that may be on their way.
  Task<void> lie(Context& context, std::uint64_t seed) {
    Random random(seed);
    auto& session = static_cast<rpc::ServerSession&>(detail::ContextAccess::reply_sink(context).origin());
    for (std::size_t i = 1 + below(random, 12); i != 0 && !session.closed(); --i) {
      const auto slot = static_cast<std::uint32_t>(below(random, 6));
      constexpr std::size_t lengths[] = {0, 1, 64, 1000, 100'000, 99'999, 131'072, 150'000};
      const std::size_t length = lengths[below(random, std::size(lengths))];
      const bool good = below(random, 4) != 0;
      inject(session.connection(),
             wire::MemoryReplyFrame{
                 .call = wire::CallId::from_number((1U + (below(random, 8) == 0 ? 1U : 0U)) << 16 | slot),
                 .code = good ? ErrorCode::ok : static_cast<ErrorCode>(below(random, 40)),
                 .crc = static_cast<std::uint32_t>(random())},
             std::string(good && below(random, 3) != 0 ? 0 : below(random, 10), 't'), std::string(length, 'x'));
      if (below(random, 4) == 0) {
        co_await context.loop().sleep(std::chrono::microseconds(below(random, 300)));
      }
    }
  }

 private:
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

namespace {

// Its memory ends with it.
Task<void> read_of_liar(RemoteMemory remote, RemoteRegion region, std::uint64_t seed, const std::stop_token& stop,
                        std::size_t& ended) {
  Random random(seed);
  constexpr std::size_t lengths[] = {1, 64, 1000, 100'000, 131'072, 150'000};
  const std::size_t length = lengths[below(random, std::size(lengths))];
  RemoteOptions options{.timeout = std::chrono::milliseconds(1 + below(random, 50)), .checksum = below(random, 3) == 0};
  if (below(random, 2) == 0) options.token = &stop;
  {
    const auto local = std::make_unique<std::byte[]>(length);
    const MutableBytes all(local.get(), length);
    TransferBatch batch;
    if (below(random, 2) == 0) {
      for (std::size_t at = 0; at < length; at += 777) {
        const std::size_t part = std::min<std::size_t>(777, length - at);
        batch.add(all.subspan(at, part), (at * 7919) % (region_bytes - part));
      }
      static_cast<void>(co_await remote.read(region, batch, options));
    } else if (below(random, 3) != 0) {
      static_cast<void>(co_await remote.read(region, 0, all, options));
    } else {
      static_cast<void>(co_await remote.write(region, 0, all, options));
    }
  }
  ++ended;
}

Task<void> call_of_liar(Client& client, std::uint64_t seed) {
  static_cast<void>(co_await client.call<&Liar::lie>(seed));
}

}  // namespace

class HostileMemoryConformance : public Conformance {
 protected:
  static constexpr std::uint64_t seeds = 40;
  template <class Body>
  void with_liar(Body body) {
    const std::unique_ptr<Server> server = make_server();
    Liar liar(*server);
    server->register_handler<&Liar::lie>(&liar);
    run([&]() -> Task<void> {
      REQUIRE_OK(server->start());
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE(seed);
        const std::unique_ptr<Client> client = make_client();
        auto connected = co_await client->connect(server->address());
        REQUIRE_OK(connected);
        co_await body(liar, *client, seed);
        client->close();
        EXPECT_TRUE(liar.unchanged(0, guard_bytes) && liar.unchanged(guard_bytes + region_bytes, guard_bytes));
      }
      co_await server->shut_down(10ms);
      EXPECT_EQ(server->counters().connections_open, 0U);
      co_await reach_rest(loop(), *server);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, HostileMemoryConformance, ::testing::ValuesIn(backends()),
                         [](const ::testing::TestParamInfo<BackendFactory>& one) { return one.param.name; });

TEST_P(HostileMemoryConformance, ForgedRequestsReachNoOtherMemory) {
  with_liar([this](Liar& liar, Client& client, std::uint64_t seed) -> Task<void> {
    Random random(seed);
    const bool readable_only = seed % 2 == 0;
    const RemoteRegion region = liar.expose(readable_only ? RegionAccess::read : RegionAccess::read_write);
    transport::Connection& connection =
        static_cast<rpc::ClientSession&>(*detail::ClientAccess::connection(client)).connection();
    const bool clean = liar.unchanged(0, region_bytes);
    for (std::size_t i = 1 + below(random, 10); i != 0; --i) inject_request(connection, random, region);
    if (below(random, 3) == 0) liar.revoke();
    co_await loop().sleep(3ms);
    if (readable_only && clean) {
      EXPECT_TRUE(liar.unchanged(0, region_bytes));
    }
  });
}

TEST_P(HostileMemoryConformance, ForgedRepliesReachNoOtherMemory) {
  with_liar([this](Liar& liar, Client& client, std::uint64_t seed) -> Task<void> {
    Random random(seed);
    const RemoteRegion region = liar.expose(RegionAccess::read_write);
    std::stop_source stop;
    const std::stop_token token = stop.get_token();
    std::size_t ended = 0;
    const std::size_t accesses = 1 + below(random, 6);
    Scope scope;
    const bool lies_first = below(random, 2) == 0;
    if (lies_first) scope.spawn(call_of_liar(client, seed));
    for (std::size_t i = 0; i < accesses; ++i) {
      scope.spawn(read_of_liar(RemoteMemory(client), region, random(), token, ended));
    }
    if (!lies_first) scope.spawn(call_of_liar(client, seed));
    co_await loop().sleep(std::chrono::microseconds(below(random, 2000)));
    stop.request_stop();
    co_await scope.join();
    EXPECT_EQ(ended, accesses);
  });
}

}  // namespace hawser::conformance
