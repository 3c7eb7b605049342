#include "protocol/resp/reply_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace hawser::protocol::resp {
namespace {

// Memory of exactly as many bytes as are wanted, so that a writer that needs more is detected.
struct ExactMemory final : ReplyMemory {
  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override {
    EXPECT_LE(used, block.size());
    replies.append(block.data(), used);
    ++calls;
    block.assign(bytes + extra, '?');
    size = block.size();
    return block.data();
  }
  std::string replies;
  std::vector<char> block;
  std::size_t extra = 0;
  int calls = 0;
};

// Returns what `write` writes in that version, which does not depend on the lengths of the blocks.
template <class Write>
std::string written(int version, Write write) {
  std::string text;
  for (std::size_t extra = 0; extra < 80; ++extra) {
    ExactMemory memory;
    memory.extra = extra;
    ReplyWriter out(memory);
    out.set_version(version);
    write(out);
    out.flush();
    if (extra == 0) text = memory.replies;
    EXPECT_EQ(memory.replies, text) << extra;
  }
  return text;
}

TEST(RespReply, OfEachKindInBothVersions) {
  const auto scalars = [](ReplyWriter& out) {
    out.ok();
    out.status("QUEUED");
    out.error("ERR wrong");
    out.number(std::numeric_limits<std::int64_t>::min());
    out.bulk("");
    out.bulk("a\r\nb");
  };
  EXPECT_EQ(written(2, scalars), "+OK\r\n+QUEUED\r\n-ERR wrong\r\n:-9223372036854775808\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
  EXPECT_EQ(written(3, scalars), written(2, scalars));
  const auto others = [](ReplyWriter& out) {
    out.null();
    out.verbatim("text");
    out.array(2);
    out.set(3);
    out.map(4);
    out.push(5);
  };
  EXPECT_EQ(written(2, others), "$-1\r\n$4\r\ntext\r\n*2\r\n*3\r\n*8\r\n>5\r\n");
  EXPECT_EQ(written(3, others), "_\r\n=8\r\ntxt:text\r\n*2\r\n~3\r\n%4\r\n>5\r\n");
}

// A text of a client within an error must not become a reply of its own.
TEST(RespReply, LinesHaveNoLineEndWithin) {
  EXPECT_EQ(written(2, [](ReplyWriter& out) { out.error("ERR a\rb\nc\r\n+OK"); }), "-ERR a b c  +OK\r\n");
}

TEST(RespReply, MemoryIsAskedForWhenItIsUsedUp) {
  ExactMemory memory;
  memory.extra = 100;
  ReplyWriter out(memory);
  out.flush();
  EXPECT_EQ(memory.calls, 0) << "nothing was written";
  out.raw("abc");
  out.raw("");
  EXPECT_EQ(memory.calls, 1);
  EXPECT_EQ(out.unflushed(), 3U);
  EXPECT_EQ(memory.replies, "");
  out.raw(std::string(100, 'x'));
  EXPECT_EQ(memory.calls, 1) << "the block has 103 bytes";
  out.raw("y");
  EXPECT_EQ(memory.calls, 2);
  EXPECT_EQ(memory.replies.size(), 103U);
  EXPECT_EQ(out.unflushed(), 1U);
  out.detach();
  EXPECT_EQ(out.unflushed(), 0U);
  out.flush();
  EXPECT_EQ(memory.calls, 2) << "the memory is forgotten";
}

}  // namespace
}  // namespace hawser::protocol::resp
