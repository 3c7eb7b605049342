#include "transport/shm/offered_payloads.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "transport/shm/memory/doorbell.h"

namespace hawser::transport::shm {
namespace {

struct OfferingOwner final : SendCompletion {
  void on_send_complete() noexcept override {
    ++notified;
    if (then) then();
  }
  int notified = 0;
  std::function<void()> then;
};

// One thread is both sides: it changes the states of slots as a receiver does.
class OfferedPayloadsTest : public testing::Test {
 protected:
  std::size_t offer(std::string_view text) {
    const ConstBuffer piece{as_bytes(text).data(), text.size()};
    return offered.offer({&piece, 1}, text.size(), owner);
  }
  ReadSlot& slot(std::size_t index) { return memory->control().reads[server_side][index]; }
  std::uint32_t state(std::size_t index) { return slot(index).state.load(); }
  // Text at the address that the peer reads.
  static std::string_view text_at(std::uint64_t address, std::size_t bytes) {
    return {reinterpret_cast<const char*>(address), bytes};
  }

  std::shared_ptr<SharedMemory> memory = *SharedMemory::create({ring_bytes_min, 0}, false);
  Doorbell bell{Descriptor()};
  PeerWaker waker{memory->control().sides[client_side], bell};
  OfferingOwner owner;
  OfferedPayloads offered{*memory, server_side};
};

TEST_F(OfferedPayloadsTest, ArePiecesAtTheirOwnersAddress) {
  const std::string_view one = "one", two = "two2";
  const std::array<ConstBuffer, 3> pieces{ConstBuffer{as_bytes(one).data(), 3}, ConstBuffer{nullptr, 0},
                                          ConstBuffer{as_bytes(two).data(), 4}};
  const std::size_t at = offered.offer(pieces, 7, owner);
  ASSERT_NE(at, OfferedPayloads::none);
  EXPECT_EQ(state(at), read_offered);
  EXPECT_EQ(slot(at).count.load(), 2U) << "an empty piece is not offered";
  EXPECT_EQ(text_at(slot(at).pieces[0].address.load(), slot(at).pieces[0].bytes.load()), one);
  EXPECT_EQ(text_at(slot(at).pieces[1].address.load(), slot(at).pieces[1].bytes.load()), two);
  EXPECT_EQ(offered.bytes(), 7U);
  EXPECT_FALSE(offered.can_advance());
  EXPECT_FALSE(offered.advance(waker));
  slot(at).state = read_done;
  EXPECT_TRUE(offered.can_advance());
  EXPECT_TRUE(offered.advance(waker));
  EXPECT_EQ(owner.notified, 1);
  EXPECT_EQ(offered.bytes(), 0U);
  EXPECT_TRUE(offered.empty());
}

TEST_F(OfferedPayloadsTest, AreAsManyAsThereAreSlots) {
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < reads_max; ++i) slots.push_back(offer("a"));
  EXPECT_EQ(slots.back(), reads_max - 1);
  EXPECT_EQ(offer("a"), OfferedPayloads::none);
  slot(17).state = read_done;
  EXPECT_TRUE(offered.advance(waker));
  EXPECT_EQ(owner.notified, 1);
  EXPECT_EQ(offered.bytes(), reads_max - 1);
  EXPECT_EQ(offer("a"), 17U);
  const std::string_view text = "abcd";
  std::vector<ConstBuffer> pieces;
  for (const char& c : text) pieces.push_back({reinterpret_cast<const std::byte*>(&c), 1});
  slot(3).state = read_done;
  offered.advance(waker);
  EXPECT_EQ(offered.offer(pieces, 4, owner), OfferedPayloads::none) << "more than read_pieces_max pieces";
  EXPECT_EQ(offer("b"), 3U) << "the slot is still free";
}

TEST_F(OfferedPayloadsTest, AreCopiedInPartsThatThePeerRequests) {
  const std::string text = std::string(part_bytes, 'a') + "rest";
  const std::size_t at = offer(text);
  slot(at).state = read_wanted;
  EXPECT_TRUE(offered.can_advance());
  EXPECT_TRUE(offered.advance(waker));
  EXPECT_EQ(state(at), read_filled);
  EXPECT_EQ(as_text(Bytes(memory->part(server_side), part_bytes)), text.substr(0, part_bytes));
  slot(at).state = read_wanted;
  EXPECT_TRUE(offered.advance(waker));
  EXPECT_EQ(as_text(Bytes(memory->part(server_side), 4)), "rest");
  EXPECT_FALSE(offered.broken());
  slot(at).state = read_wanted;
  offered.advance(waker);
  EXPECT_TRUE(offered.broken()) << "the peer has had all of it";
  EXPECT_EQ(owner.notified, 0);
}

TEST_F(OfferedPayloadsTest, MoveOnce) {
  std::string text = "the payload";
  const std::size_t at = offer(text);
  OfferingOwner other;
  offered.copy_and_release(other);
  EXPECT_EQ(state(at), read_offered) << "another owner's";
  offered.copy_and_release(owner);
  text.assign(text.size(), '?');
  EXPECT_EQ(state(at), read_moved);
  EXPECT_EQ(text_at(slot(at).moved.load(), text.size()), "the payload");
  const std::size_t wanted = offer(text);
  slot(wanted).state = read_wanted;
  offered.copy_and_release(owner);
  EXPECT_EQ(state(wanted), read_wanted) << "parts are copied from the new memory";
  text.assign(text.size(), '!');
  offered.advance(waker);
  EXPECT_EQ(as_text(Bytes(memory->part(server_side), text.size())), std::string(text.size(), '?'));
  slot(at).state = slot(wanted).state = read_done;
  offered.advance(waker);
  EXPECT_EQ(owner.notified, 0);
  EXPECT_TRUE(offered.empty());
}

TEST_F(OfferedPayloadsTest, AreNotReadOnceWithdrawn) {
  const std::size_t first = offer("first");
  const std::size_t second = offer("second");
  slot(second).state = read_done;
  const std::vector<OfferedPayloads::Payload> withdrawn = offered.withdraw();
  ASSERT_EQ(withdrawn.size(), 2U);
  EXPECT_EQ(withdrawn[0].owner, &owner);
  EXPECT_EQ(state(first), read_withdrawn);
  EXPECT_EQ(state(second), read_done) << "it was read before";
  EXPECT_TRUE(offered.empty());
  EXPECT_EQ(offered.bytes(), 0U);
  EXPECT_EQ(owner.notified, 0) << "the caller notifies";
}

// An owner that is notified ends the connection.
TEST_F(OfferedPayloadsTest, MayBeWithdrawnByAnOwner) {
  const std::size_t first = offer("first");
  offer("second");
  slot(first).state = read_done;
  owner.then = [&] { EXPECT_EQ(offered.withdraw().size(), 1U); };
  EXPECT_TRUE(offered.advance(waker));
  EXPECT_EQ(owner.notified, 1);
  EXPECT_TRUE(offered.empty());
}

}  // namespace
}  // namespace hawser::transport::shm
