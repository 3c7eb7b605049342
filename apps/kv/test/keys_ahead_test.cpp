#include "protocol/resp/keys_ahead.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "hawser/bytes.h"
#include "kv/test/resp_peer.h"
#include "protocol/resp/request_parser.h"

namespace hawser::kv {
namespace {

std::vector<std::string> ahead(std::string_view text) {
  std::array<std::string_view, 16> keys;
  const std::size_t count = resp::keys_ahead(as_bytes(text), keys);
  return {keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count)};
}

// The keys that the parser finds: the second arguments of complete requests.
std::vector<std::string> parsed(std::string_view text) {
  resp::RequestParser parser;
  std::vector<std::string> keys;
  while (keys.size() < 16) {
    const resp::RequestParser::Step step = parser.next(as_bytes(text));
    if (step.event != resp::RequestParser::Event::request) break;
    keys.emplace_back(parser.arguments()[1]);
    text.remove_prefix(step.consumed);
  }
  return keys;
}

TEST(KeysAhead, AreThoseOfTheParserAtEveryCut) {
  Random random(7);
  std::string text;
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> arguments{"SET", std::string(random.below(20), 'k')};
    while (random.below(3) != 0 && arguments.size() < 16) arguments.emplace_back(random.below(30), '\n');
    text += request(arguments);
  }
  for (std::size_t end = 0; end <= text.size(); ++end) {
    const std::string_view part = std::string_view(text).substr(0, end);
    ASSERT_EQ(ahead(part), parsed(part)) << end;
  }
  EXPECT_EQ(ahead(text).size(), 16U);
}

TEST(KeysAhead, EndWithWhatIsNoRequestWithAKey) {
  const std::string good = request({"GET", "a"});
  const std::vector<std::string> one{"a"};
  for (const std::string& next :
       {request({"PING"}), std::string("GET b\r\n"), std::string("*2\r\n$3\r\nGET\r\n$1\n\nb\r\n"),
        std::string("*-1\r\n"), std::string("*2\r\n$99999999999999999999\r\n"),
        std::string("*2\r\n$3\r\nGET\r\n$-1\r\n"), std::string(100, '*'), std::string("*\r\n$\r\n"),
        request(std::vector<std::string>(17, "x"))}) {
    EXPECT_EQ(ahead(good + next), one) << next;
  }
  EXPECT_EQ(ahead(""), std::vector<std::string>());
}

}  // namespace
}  // namespace hawser::kv
