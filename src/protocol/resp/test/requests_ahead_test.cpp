#include "protocol/resp/requests_ahead.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "hawser/bytes.h"
#include "protocol/resp/request_parser.h"
#include "protocol/resp/test/request_text.h"

namespace hawser::protocol::resp {
namespace {

// Requests as text: their lengths and arguments.
using Described = std::vector<std::string>;

std::string describe(std::size_t bytes, std::span<const std::string_view> arguments) {
  std::string text = std::to_string(bytes);
  for (const std::string_view argument : arguments) text.append("|").append(argument);
  return text;
}

Described ahead(std::string_view text, const RequestLimits& limits = {}) {
  RequestsAhead requests;
  Described found;
  for (const ReadyRequest& request : requests.find(as_bytes(text), limits)) {
    EXPECT_FALSE(request.hashed);
    found.push_back(describe(request.bytes, request.arguments()));
  }
  return found;
}

// The first requests that the parser finds, at most `most`.
Described parsed(std::string_view text, std::size_t most, const RequestLimits& limits = {}) {
  RespParser parser(limits);
  Described found;
  while (found.size() < most) {
    const RespParser::Step step = parser.next(as_bytes(text));
    if (step.event != RespParser::Event::request) break;
    found.push_back(describe(step.consumed, parser.arguments()));
    text.remove_prefix(step.consumed);
  }
  return found;
}

TEST(RequestsAhead, AreThoseOfTheParserAtEveryCut) {
  Random random(7);
  std::string text;
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> arguments{"SET", std::string(random.below(20), 'k')};
    if (random.below(3) != 0) arguments.emplace_back(random.below(30), '\n');
    text += request(arguments);
  }
  for (std::size_t end = 0; end <= text.size(); ++end) {
    const std::string_view part = std::string_view(text).substr(0, end);
    ASSERT_EQ(ahead(part), parsed(part, RequestsAhead::requests_max)) << end;
  }
  EXPECT_EQ(ahead(text).size(), RequestsAhead::requests_max);
}

// Bytes that are changed at random: each request that is found is the one that the parser finds.
TEST(RequestsAhead, AreThoseOfTheParserInDamagedBytes) {
  Random random(11);
  constexpr std::string_view likely = "*$0123456789\r\n-+ aG";
  const RequestLimits limits{.arguments_max = 5, .bulk_bytes_max = 40, .request_bytes_max = 90, .line_bytes_max = 100};
  std::size_t found = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (int i = 0; i < 4; ++i) {
      std::vector<std::string> arguments(1 + random.below(6));
      for (std::string& argument : arguments) argument.assign(random.below(50), 'v');
      text += request(arguments);
    }
    for (std::size_t i = random.below(3); i != 0; --i) {
      text[random.below(text.size())] = likely[random.below(likely.size())];
    }
    const Described here = ahead(text, limits);
    found += here.size();
    ASSERT_EQ(here, parsed(text, here.size(), limits)) << text;
  }
  EXPECT_GT(found, 1000U);
}

TEST(RequestsAhead, EndWithWhatTheParserTakes) {
  const std::string good = request({"GET", "a"});
  const Described one{"20|GET|a"};
  for (const std::string& next :
       {std::string("GET b\r\n"), std::string("*2\r\n$3\r\nGET\r\n$1\n\nb\r\n"), std::string("*-1\r\n"),
        std::string("*0\r\n"), std::string("*02\r\n$3\r\nGET\r\n$1\r\nb\r\n"),
        std::string("*2\r\n$03\r\nGET\r\n$1\r\nb\r\n"), std::string("*2\r\n$99999999999999999999\r\n"),
        std::string("*2\r\n$3\r\nGET\r\n$-1\r\n"), std::string(100, '*'), std::string("*\r\n$\r\n"),
        request(std::vector<std::string>(RequestsAhead::arguments_max - 1, "x"))}) {
    EXPECT_EQ(ahead(good + next), one) << next;
  }
  EXPECT_EQ(ahead(""), Described());
}

// A request that is not found costs time only: the parser takes it. So the other tests do not notice it.
TEST(RequestsAhead, HaveEveryLengthUpToTheLimits) {
  for (const std::size_t size : {0U, 9U, 10U, 99U, 100U, 999U, 70'000U}) {
    const std::string value(size, 'v');
    EXPECT_EQ(ahead(request({"SET", "k", value})).size(), 1U) << size;
    EXPECT_EQ(ahead(request({value})).size(), 1U) << size;
  }
  const std::string text = request({"SET", "key", std::string(40, 'v')});
  EXPECT_EQ(ahead(text, {.bulk_bytes_max = 40}).size(), 1U);
  EXPECT_EQ(ahead(text, {.bulk_bytes_max = 39}).size(), 0U);
  EXPECT_EQ(ahead(text, {.arguments_max = 3}).size(), 1U);
  EXPECT_EQ(ahead(text, {.arguments_max = 2}).size(), 0U);
  EXPECT_EQ(ahead(text, {.request_bytes_max = text.size() - 2}).size(), 1U) << "the last CR LF does not count";
  EXPECT_EQ(ahead(text, {.request_bytes_max = text.size() - 3}).size(), 0U);
}

TEST(RequestsAhead, ShareTheRoomForArguments) {
  const std::string long_one = request(std::vector<std::string>(RequestsAhead::arguments_max - 2, "x"));
  EXPECT_EQ(ahead(long_one + request({"GET", "a"})).size(), 2U);
  EXPECT_EQ(ahead(long_one + request({"SET", "a", "b"})).size(), 1U);
}

}  // namespace
}  // namespace hawser::protocol::resp
