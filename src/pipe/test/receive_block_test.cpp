#include "pipe/receive_block.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

namespace hawser::pipe {
namespace {

constexpr std::size_t block_bytes = 64 * 1024;

void receive(ReceiveBlock& block, std::string_view text) {
  ASSERT_GE(block.space().size(), text.size());
  std::memcpy(block.space().data(), text.data(), text.size());
  block.received(text.size());
}

TEST(ReceiveBlock, HasNoMemoryBeforeTheFirstByte) {
  ReceiveBlock block;
  EXPECT_TRUE(block.bytes().empty());
  EXPECT_TRUE(block.space().empty());
  EXPECT_EQ(block.size(), 0U);
  EXPECT_FALSE(block.fit(1));
  block.park();
  EXPECT_EQ(block.block(), nullptr);
}

TEST(ReceiveBlock, BytesAreTakenInTheOrderOfTheirArrival) {
  ReceiveBlock block;
  block.replace(block_bytes);
  receive(block, "abc");
  receive(block, "def");
  block.take(2);
  EXPECT_EQ(as_text(block.bytes()), "cdef");
  block.drop_if_empty();
  EXPECT_NE(block.block(), nullptr);
  block.take(4);
  block.drop_if_empty();
  EXPECT_EQ(block.block(), nullptr);
}

TEST(ReceiveBlock, ABlockOfItsOwnIsUsedAgainFromItsBeginning) {
  ReceiveBlock block;
  block.replace(block_bytes);
  receive(block, std::string(block.size() - 3, 'x') + "end");
  block.take(block.size() - 3);
  const Block* const before = block.block();
  EXPECT_TRUE(block.has_room(3));
  EXPECT_FALSE(block.has_room(4));
  EXPECT_TRUE(block.fit(4));
  EXPECT_EQ(block.block(), before);
  EXPECT_EQ(as_text(block.bytes()), "end");
  EXPECT_EQ(block.space().size(), block.size() - 3);
  EXPECT_FALSE(block.fit(block.size() + 1)) << "it is too small";
}

TEST(ReceiveBlock, ABlockThatIsStillReadStaysAsItIs) {
  ReceiveBlock block;
  block.replace(block_bytes);
  receive(block, std::string(block.size() - 3, 'x') + "end");
  const Buffer reader = Buffer::share(block.block(), block.data(), block.held());
  block.take(block.size() - 3);
  EXPECT_FALSE(block.fit(4));
  block.replace(block_bytes);
  EXPECT_NE(block.block(), reader.block());
  EXPECT_EQ(as_text(block.bytes()), "end");
  EXPECT_EQ(reader.text().front(), 'x');
  EXPECT_TRUE(reader.block()->unique()) << "the connection holds the old block no longer";
}

TEST(ReceiveBlock, AWaitingConnectionKeepsABlockOfTheSizeOfItsBytes) {
  ReceiveBlock block;
  block.replace(block_bytes);
  receive(block, "begun");
  block.park();
  EXPECT_EQ(as_text(block.bytes()), "begun");
  EXPECT_LE(block.size(), ReceiveBlock::parked_bytes_max);
  const Block* const parked = block.block();
  block.park();
  EXPECT_EQ(block.block(), parked) << "it is small already";
  block.take(5);
  block.park();
  EXPECT_EQ(block.block(), nullptr);
}

TEST(ReceiveBlock, ALongPartIsNotMoved) {
  ReceiveBlock block;
  block.replace(block_bytes);
  receive(block, std::string(ReceiveBlock::parked_bytes_max + 1, 'x'));
  const Block* const before = block.block();
  block.park();
  EXPECT_EQ(block.block(), before);
  block.park(ReceiveBlock::parked_bytes_max + 1);
  EXPECT_NE(block.block(), before) << "the caller allows it";
  EXPECT_EQ(block.held(), ReceiveBlock::parked_bytes_max + 1);
}

}  // namespace
}  // namespace hawser::pipe
