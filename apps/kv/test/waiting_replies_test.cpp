#include "kv/waiting_replies.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv/string_replies.h"

namespace hawser::kv {
namespace {

std::string text_of_first(WaitingReplies& waiting) {
  StringReplies memory;
  protocol::resp::ReplyWriter out(memory);
  waiting.take_first().write_to(out);
  out.flush();
  return memory.text();
}

TEST(WaitingReplies, KeepTheOrderOfTheirCommands) {
  WaitingReplies waiting;
  EXPECT_FALSE(waiting.ready());
  const std::uint64_t first = waiting.add({.route = CommandRoute::key, .parts_left = 1});
  const std::uint64_t second = waiting.add({.text = "+second\r\n"}, 9);
  EXPECT_EQ(first, waiting.first_slot());
  EXPECT_EQ(second, waiting.last_slot());
  EXPECT_FALSE(waiting.ready()) << "the first one is not complete";
  waiting.add_part(first, 0, "$1\r\na\r\n");
  EXPECT_EQ(waiting.bytes(), 16U);
  ASSERT_TRUE(waiting.ready());
  EXPECT_EQ(text_of_first(waiting), "$1\r\na\r\n");
  EXPECT_EQ(waiting.first_slot(), second);
  EXPECT_EQ(waiting.bytes(), 9U);
  EXPECT_EQ(text_of_first(waiting), "+second\r\n");
  EXPECT_TRUE(waiting.empty());
  EXPECT_EQ(waiting.bytes(), 0U);
}

TEST(WaitingReplies, ASumAddsThePartsAndHoldsNothing) {
  WaitingReplies waiting;
  const std::uint64_t slot = waiting.add({.route = CommandRoute::keys_sum, .parts_left = 3});
  for (const char* const part : {":1\r\n", ":0\r\n", ":41\r\n"}) waiting.add_part(slot, 0, part);
  EXPECT_EQ(waiting.bytes(), 0U);
  ASSERT_TRUE(waiting.ready());
  EXPECT_EQ(text_of_first(waiting), ":42\r\n");
}

TEST(WaitingReplies, TheElementsOfAListStandInTheOrderOfTheKeys) {
  WaitingReplies waiting;
  const std::uint64_t slot = waiting.add({.route = CommandRoute::keys_list, .parts_left = 2});
  waiting.expect_elements(slot, 2);
  EXPECT_EQ(waiting.bytes(), 2 * sizeof(std::string));
  waiting.add_part(slot, 1, "*1\r\n$-1\r\n");
  EXPECT_FALSE(waiting.ready());
  waiting.add_part(slot, 0, "*1\r\n$1\r\na\r\n");
  EXPECT_EQ(waiting.bytes(), 2 * sizeof(std::string) + 12);
  ASSERT_TRUE(waiting.ready());
  EXPECT_EQ(text_of_first(waiting), "*2\r\n$1\r\na\r\n$-1\r\n");
  EXPECT_EQ(waiting.bytes(), 0U);
}

TEST(WaitingReplies, PartsWithTheSameReplyAreOne) {
  WaitingReplies waiting;
  const std::uint64_t slot = waiting.add({.route = CommandRoute::all_status, .parts_left = 2});
  waiting.add_part(slot, 0, "+OK\r\n");
  waiting.add_part(slot, 1, "+OK\r\n");
  EXPECT_EQ(waiting.bytes(), 5U);
  EXPECT_EQ(text_of_first(waiting), "+OK\r\n");
}

TEST(WaitingReplies, TheFirstErrorIsTheReplyAndFreesTheOthers) {
  WaitingReplies waiting;
  const std::uint64_t slot = waiting.add({.route = CommandRoute::keys_list, .parts_left = 4});
  waiting.expect_elements(slot, 4);
  waiting.add_part(slot, 0, "*1\r\n$1\r\na\r\n");
  waiting.add_part(slot, 1, "-ERR first\r\n");
  EXPECT_EQ(waiting.bytes(), 0U);
  waiting.add_part(slot, 2, "-ERR second\r\n");
  waiting.add_part(slot, 3, "*1\r\n$1\r\nb\r\n");
  EXPECT_EQ(waiting.bytes(), 0U);
  ASSERT_TRUE(waiting.ready());
  EXPECT_EQ(text_of_first(waiting), "-ERR first\r\n");
}

TEST(WaitingReplies, AListBeyondTheLimitOfAReplyIsAnError) {
  WaitingReplies waiting;
  const std::uint64_t slot = waiting.add({.route = CommandRoute::keys_list, .parts_left = 2}, reply_bytes_max - 7);
  waiting.at(slot).parts.resize(2);
  waiting.add_part(slot, 0, "*1\r\n$1\r\na\r\n");
  EXPECT_EQ(waiting.bytes(), reply_bytes_max) << "exactly at the limit";
  waiting.add_part(slot, 1, "*1\r\n+\r\n");
  EXPECT_EQ(waiting.bytes(), 0U);
  EXPECT_EQ(text_of_first(waiting), "-" + std::string(values_too_long) + "\r\n");
}

TEST(WaitingReplies, SlotsAreNotUsedAgainAfterClear) {
  WaitingReplies waiting;
  const std::uint64_t before = waiting.add({.text = "+a\r\n"}, 4);
  waiting.clear();
  EXPECT_EQ(waiting.bytes(), 0U);
  EXPECT_GT(waiting.add({.text = "+b\r\n"}, 4), before);
  std::vector<std::string> texts;
  waiting.each([&](const WaitingReply& reply) { texts.push_back(reply.text); });
  EXPECT_EQ(texts, std::vector<std::string>({"+b\r\n"}));
}

}  // namespace
}  // namespace hawser::kv
