#include "kv/command_list.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hawser::kv {
namespace {

void add(CommandList& commands, const std::vector<std::string>& words) {
  const Command* const command = find_command(words.front());
  ASSERT_NE(command, nullptr);
  const std::vector<std::string_view> views(words.begin(), words.end());
  commands.add(*command, views);
}

std::vector<std::string> texts(const CommandList& commands) {
  std::vector<std::string> all;
  commands.each([&](const Command& command, Arguments arguments, std::size_t) {
    std::string text(command.name);
    for (const std::string_view argument : arguments.subspan(1)) text.append("|").append(argument);
    all.push_back(text);
  });
  return all;
}

TEST(CommandList, KeepsCopiesOfTheArguments) {
  CommandList commands;
  EXPECT_TRUE(commands.empty());
  {
    std::string key(100, 'k');
    add(commands, {"set", key, ""});
    key.assign(100, 'x');
  }
  add(commands, {"ping"});
  add(commands, {"mget", "a", "bc", ""});
  EXPECT_EQ(commands.size(), 3U);
  EXPECT_EQ(texts(commands), (std::vector<std::string>{"set|" + std::string(100, 'k') + "|", "ping", "mget|a|bc|"}));
}

TEST(CommandList, AListWritesIfOneOfItsCommandsDoes) {
  CommandList commands;
  add(commands, {"get", "a"});
  EXPECT_FALSE(commands.writes());
  add(commands, {"del", "a"});
  EXPECT_TRUE(commands.writes());
  add(commands, {"get", "a"});
  EXPECT_TRUE(commands.writes());
}

TEST(CommandList, CountsItsMemory) {
  CommandList commands;
  EXPECT_EQ(commands.bytes(), 0U);
  add(commands, {"get", "a"});
  const std::size_t one = commands.bytes();
  EXPECT_GT(one, 4U);
  add(commands, {"get", std::string(1001, 'a')});
  EXPECT_EQ(commands.bytes(), 2 * one + 1000);
}

TEST(CommandList, EachReplyHasTheBytesBehindTheOneBefore) {
  CommandList commands;
  add(commands, {"get", "a"});
  add(commands, {"ping"});
  add(commands, {"get", "b"});
  std::size_t index = 0;
  std::size_t end = 0;
  commands.each([&](const Command&, Arguments, std::size_t) {
    end += index == 1 ? 0 : 10 + index;
    commands.set_replies_end(index++, end);
  });
  std::vector<std::size_t> bytes;
  commands.each([&](const Command&, Arguments, std::size_t reply) { bytes.push_back(reply); });
  EXPECT_EQ(bytes, (std::vector<std::size_t>{10, 0, 12}));
}

}  // namespace
}  // namespace hawser::kv
