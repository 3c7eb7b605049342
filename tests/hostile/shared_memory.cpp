#include "transport/shm/memory/shared_memory.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>

#include "hawser/memory.h"
#include "rpc/session/memory_frames.h"
#include "tests/hostile/server_fixture.h"
#include "transport/shm/handshake.h"
#include "transport/shm/peer.h"
#include "wire/memory_body.h"

// A client that uses shared memory by hand, and leaves or breaks the rules at each step.
namespace hawser::hostile {
namespace {

using namespace transport::shm;

class ForgedPeer {
 public:
  explicit ForgedPeer(RawSocket socket) : stream(std::move(socket)) {}

  // Offers shared memory and receives the server's selection.
  bool offer() {
    wire::Hello hello = usual_hello();
    hello.offers.push_back({"shm", encode(ShmOffer{*HostIdentity::here(), 256 * 1024, 1 << 20, 8 * 1024})});
    stream.send(wire::encode_hello(hello));
    const Result<wire::Hello> answer = stream.receive_hello();
    if (!answer || !answer->selection || answer->selection->name != "shm") return false;
    selection = *decode_selection(answer->selection->bytes);
    return true;
  }
  bool come() {
    memory = *SharedMemory::create({selection.ring_bytes, selection.slab_bytes}, false);
    Result<Doorbell> met = meet(selection.socket, selection.secret, memory->fd());
    if (met) bell.emplace(std::move(*met));
    return bell.has_value();
  }
  void answer() {
    wire::Hello hello = usual_hello();
    hello.answer = encode(ShmAnswer{});
    stream.send(wire::encode_hello(hello));
  }
  // Returns whether the server reports that both pending connections are connected.
  bool goes() {
    const Result<wire::Hello> hello = stream.receive_hello();
    return hello && hello->ready;
  }
  // Writes a record and its data at the start of the ring.
  void put(const RingRecord& record, Bytes data) {
    std::memcpy(memory->ring(client_side), &record, sizeof record);
    std::memcpy(memory->ring(client_side) + sizeof record, data.data(), data.size());
    memory->control().rings[client_side].tail.store(sizeof record + aligned(data.size()));
    PeerWaker(memory->control().sides[server_side], *bell).wake(wants_messages);
  }

  // Makes the whole connection.
  bool connect() {
    if (!offer() || !come()) return false;
    answer();
    return goes();
  }
  // Writes a message behind the others. The server sees it after publish(). All must fit into the ring.
  void append(const RingRecord& record, Bytes head) {
    std::byte* const to = memory->ring(client_side) + written;
    std::memcpy(to, &record, sizeof record);
    std::memcpy(to + sizeof record, head.data(), head.size());
    written += sizeof record + aligned(head.size());
  }
  void publish() {
    memory->control().rings[client_side].tail.store(written);
    PeerWaker(memory->control().sides[server_side], *bell).wake(wants_messages);
  }

  RawSocket stream;
  std::uint64_t written = 0;
  Selection selection;
  std::shared_ptr<SharedMemory> memory;
  std::optional<Doorbell> bell;
};

// Returns the head of an echo request, without the prefix that byte streams need.
Octets head_of(const Octets& message) { return {message.begin() + 8, message.end()}; }

TEST_F(HostileClient, SharedMemoryPeersThatLeaveAtEachStep) {
  for (int step = 0; step < 5; ++step) {
    ForgedPeer peer(connected());
    ASSERT_TRUE(peer.offer());
    if (step == 1) {
      ASSERT_TRUE(peer.come());
    }
    if (step == 2) peer.answer();  // The client has not connected to the Unix socket before.
    if (step >= 3) {
      ASSERT_TRUE(peer.come());
      peer.answer();
      ASSERT_TRUE(peer.goes());
    }
    if (step == 4) {
      peer.bell.reset();
      EXPECT_TRUE(peer.stream.closed_by_peer()) << "a doorbell that is closed ends the connection";
    }
  }
}

TEST_F(HostileClient, ASharedMemoryPeerByHandIsServed) {
  ForgedPeer peer(connected());
  ASSERT_TRUE(peer.offer());
  ASSERT_TRUE(peer.come());
  peer.answer();
  ASSERT_TRUE(peer.goes());
  const Octets head = head_of(echo_request(call_id(1)));
  peer.put({RingRecordKind::whole, static_cast<std::uint32_t>(head.size()), 0, 0}, head);
  EXPECT_TRUE(soon([&] { return peer.memory->control().rings[server_side].tail.load() != 0; })) << "no reply";
}

// Attacker and server are one process here, so the kernel would let the server read any memory that the attacker names.
// The server must not read its own memory.
TEST_F(HostileClient, ASharedMemoryPeerThatNamesTheServersMemory) {
  ForgedPeer peer(connected());
  ASSERT_TRUE(peer.offer());
  ASSERT_TRUE(peer.come());
  peer.answer();
  ASSERT_TRUE(peer.goes());
  const std::string secret(64 * 1024, 's');
  ReadSlot& slot = peer.memory->control().reads[client_side][0];
  slot.pieces[0].address.store(reinterpret_cast<std::uintptr_t>(secret.data()));
  slot.pieces[0].bytes.store(secret.size());
  slot.count.store(1);
  slot.state.store(read_offered);
  const Octets head = head_of(echo_request(call_id(1)));
  peer.put(
      {RingRecordKind::read, static_cast<std::uint32_t>(head.size()), static_cast<std::uint32_t>(secret.size()), 0},
      head);
  EXPECT_TRUE(soon([&] { return slot.state.load() == read_wanted; })) << "the server wants a copy instead";
  std::memset(peer.memory->part(client_side), 'p', part_bytes);
  slot.state.store(read_filled);
  PeerWaker(peer.memory->control().sides[server_side], *peer.bell).wake(wants_messages);
  EXPECT_TRUE(soon([&] { return slot.state.load() == read_done; }));
}

TEST_F(HostileClient, SharedMemoryPeersThatBreakTheRules) {
  const std::uint64_t before = server->counters().protocol_errors;
  const RingRecord wrong[] = {{RingRecordKind::whole, 0xffff'fff0, 0, 0},
                              {RingRecordKind::slab, 16, 100'000, chunks_max},
                              {RingRecordKind::read, 16, 100, reads_max},
                              {RingRecordKind::long_part, 16, 0, 0},
                              {static_cast<RingRecordKind>(77), 16, 0, 0}};
  for (const RingRecord& record : wrong) {
    ForgedPeer peer(connected());
    ASSERT_TRUE(peer.offer());
    ASSERT_TRUE(peer.come());
    peer.answer();
    ASSERT_TRUE(peer.goes());
    peer.put(record, Octets(16));
    EXPECT_TRUE(peer.stream.closed_by_peer());
  }
  EXPECT_TRUE(soon([&] { return server->counters().protocol_errors == before + std::size(wrong); }));
}

// The heads of frames lie in memory that the peer can change at any time, also between a check and its use.
TEST_F(HostileClient, ASharedMemoryPeerThatChangesAFrameAfterItsCheck) {
  constexpr std::size_t page = 4096;
  RegisteredBuffer buffer = std::move(*RegisteredBuffer::allocate(*server, 2 * page));
  const ExposedRegion region = std::move(*buffer.expose(0, page, RegionAccess::read_write));
  ForgedPeer peer(connected());
  ASSERT_TRUE(peer.offer());
  ASSERT_TRUE(peer.come());
  peer.answer();
  ASSERT_TRUE(peer.goes());
  // A ring full of atomics. Another thread moves them behind the region, where the buffer does not end, and back.
  const RemoteRegion& handle = region.handle();
  Octets head(wire::header_bytes + wire::region_id_bytes + wire::atomic_operands_bytes);
  write_raw_header(head.data(), {.kind = FrameKind::memory,
                                 .call = 0x10001,
                                 .method = static_cast<std::uint32_t>(wire::MemoryAction::fetch_add)});
  std::byte* const operands = wire::write_region_id(head.data() + wire::header_bytes,
                                                    {handle.owner, handle.slot, handle.generation, handle.capability});
  wire::write_atomic_operands(operands, {.offset = 0, .operand = 1});
  const RingRecord record{RingRecordKind::whole, static_cast<std::uint32_t>(head.size()), 0, 0};
  const std::size_t each = sizeof record + aligned(head.size());
  const std::size_t ring_bytes = peer.memory->sizes().ring;
  const std::size_t frames = ring_bytes / each;
  const std::size_t offset_at = sizeof record + wire::header_bytes + wire::region_id_bytes;
  RingEnds& requests = peer.memory->control().rings[client_side];
  RingEnds& replies = peer.memory->control().rings[server_side];
  for (std::uint64_t tail = 0, pass = 0; pass < 50; ++pass) {
    // The ring is mapped twice in a row, so the frames need not end with it.
    std::byte* const begin = peer.memory->ring(client_side) + tail % ring_bytes;
    for (std::size_t i = 0; i < frames; ++i) {
      std::memcpy(begin + i * each, &record, sizeof record);
      std::memcpy(begin + i * each + sizeof record, head.data(), head.size());
    }
    std::atomic<bool> stop{false};
    std::atomic<bool> begun{false};
    std::thread changes([&] {
      for (std::uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
        for (std::size_t i = 0; i < frames; ++i) {
          reinterpret_cast<std::atomic<std::uint64_t>*>(begin + i * each + offset_at)
              ->store(round % 2 * page, std::memory_order_relaxed);
        }
        begun.store(true);
      }
    });
    EXPECT_TRUE(soon([&] { return begun.load(); }));
    tail += frames * each;
    requests.tail.store(tail);
    EXPECT_TRUE(soon([&] {
      replies.head.store(replies.tail.load());
      PeerWaker(peer.memory->control().sides[server_side], *peer.bell).wake(wants_messages | wants_room);
      return requests.head.load() == tail;
    }));
    stop.store(true);
    changes.join();
  }
  EXPECT_EQ(as_text(buffer.memory().subspan(page)).find_first_not_of('\0'), std::string_view::npos)
      << "an atomic beyond the region was executed";
}

// The head of an access to one range.
Octets access_of(const RemoteRegion& handle, wire::MemoryAction action, std::uint32_t bytes) {
  Octets head(wire::header_bytes + wire::region_id_bytes + wire::memory_range_bytes);
  write_raw_header(head.data(),
                   {.kind = FrameKind::memory, .call = 0x10001, .method = static_cast<std::uint32_t>(action)});
  wire::write_memory_range(wire::write_region_id(head.data() + wire::header_bytes,
                                                 {handle.owner, handle.slot, handle.generation, handle.capability}),
                           {.offset = 0, .bytes = bytes});
  return head;
}

// A peer that reads much and releases nothing: neither its ring, nor the slab, nor payloads that it may read directly.
TEST_F(HostileClient, ASharedMemoryPeerThatTakesNoReplies) {
  constexpr std::uint32_t each = 900'000;
  RegisteredBuffer buffer = std::move(*RegisteredBuffer::allocate(*server, each));
  const ExposedRegion region = std::move(*buffer.expose(0, each, RegionAccess::read));
  ForgedPeer peer(connected());
  ASSERT_TRUE(peer.connect());
  peer.memory->control().sides[client_side].reads.store(1);  // It says that it could read the server's memory.
  const Octets head = access_of(region.handle(), wire::MemoryAction::read, each);
  const RingRecord record{RingRecordKind::whole, static_cast<std::uint32_t>(head.size()), 0, 0};
  for (int i = 0; i < 200; ++i) peer.append(record, head);
  peer.publish();
  const RingEnds& requests = peer.memory->control().rings[client_side];
  EXPECT_TRUE(soon([&] { return requests.head.load() != 0; }));
  std::uint64_t head_before = 0;
  do {
    head_before = requests.head.load();
    EXPECT_TRUE(background_client->sees_calls(100));
  } while (requests.head.load() != head_before);
  const std::size_t served = head_before / (sizeof record + aligned(head.size()));
  const std::size_t bound = peer.memory->sizes().slab + peer.memory->sizes().ring +
                            ServerOptions().send_backlog_bytes_max + detail::MemoryFrames::unsent_replies_max;
  EXPECT_LE(served, bound / each + 1) << "reads of " << each << " bytes have been served";
}

// A peer that waits for room in its window gets the answer to a write before the server copies the next one. The record
// behind the write ends the connection: an answer that waited for the end of the tick would be lost.
TEST_F(HostileClient, AWriteOverSharedMemoryIsAnsweredAtOnce) {
  constexpr std::uint32_t bytes = 64 * 1024;
  RegisteredBuffer buffer = std::move(*RegisteredBuffer::allocate(*server, bytes));
  ExposedRegion region = std::move(*buffer.expose(0, bytes, RegionAccess::read_write));
  ForgedPeer peer(connected());
  ASSERT_TRUE(peer.connect());
  std::memset(peer.memory->slab(client_side), 'x', bytes);
  const Octets head = access_of(region.handle(), wire::MemoryAction::write, bytes);
  peer.append({RingRecordKind::slab, static_cast<std::uint32_t>(head.size()), bytes, 0}, head);
  peer.append({static_cast<RingRecordKind>(77), 16, 0, 0}, Octets(16));
  peer.publish();
  EXPECT_TRUE(peer.stream.closed_by_peer());
  EXPECT_NE(peer.memory->control().rings[server_side].tail.load(), 0U);
  region.revoke();  // The server's thread does not write any more.
  EXPECT_EQ(as_text(buffer.memory()).find_first_not_of('x'), std::string_view::npos);
}

}  // namespace
}  // namespace hawser::hostile
