#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "base/escaped_text.h"
#include "hawser/identity.h"
#include "tests/testing.h"

// Who the caller is.
namespace hawser::identities {

using namespace testing_tools;

std::string who(Context& context) { return context.identity().text() + " over " + std::string(context.protocol()); }
Task<std::string> who_later(Context& context) {
  co_await context.loop().sleep(1ms);
  co_return context.identity().text();
}

void ask(const std::string& listen, const TransportOptions& transports, const std::string& expected) {
  Loop loop;
  loop.run([](Loop& here, std::string address, TransportOptions over, std::string text) -> Task<void> {
    Server server(here, {.listen = address, .transports = over});
    server.register_handler<who, who_later>();
    EXPECT_OK(server.start());
    Client client(here, {.transports = over});
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    auto at_once = co_await client.call<who>();
    EXPECT_EQ(at_once, text + " over hawser");
    auto later = co_await client.call<who_later>();
    EXPECT_EQ(later, text);
  }(loop, listen, transports, expected));
}

std::string this_process() {
  return "unix uid " + std::to_string(geteuid()) + " gid " + std::to_string(getegid()) + " pid " +
         std::to_string(getpid());
}

TEST(Identity, UnixSocket) { ask("unix:@hawser-identity-" + std::to_string(getpid()), {}, this_process()); }
TEST(Identity, TcpProvesNothing) { ask("127.0.0.1:0", {.required = "stream"}, "nobody"); }
TEST(Identity, SharedMemory) {
  ask("127.0.0.1:0", {.enabled = {shm()}, .order = {"shm"}, .required = "shm"}, this_process());
}

TEST(Identity, NobodyIsNoUser) {
  const Identity nobody;
  EXPECT_FALSE(nobody);
  EXPECT_EQ(nobody.uid, Identity::no_user);
  EXPECT_NE(nobody.uid, 0U);
  EXPECT_EQ(&no_identity(), &no_identity());
}

TEST(Identity, TextIsEscapedAndBounded) {
  Identity identity;
  identity.kind = Identity::Kind::certificate;
  identity.subject = "CN=a\nERROR\x1b[31m\xff";
  EXPECT_EQ(identity.text(), "certificate CN=a\\x0aERROR\\x1b[31m\\xff");
  identity.subject = std::string(1 << 20, '\n');
  EXPECT_LE(identity.text().size(), 256U);
  EXPECT_TRUE(identity.text().ends_with("\\x0a..."));
  identity.spiffe_id = "spiffe://example.org/storage";
  EXPECT_EQ(identity.text(), "certificate spiffe://example.org/storage");
  identity.kind = Identity::Kind::token;
  identity.spiffe_id.clear();
  identity.subject.clear();
  EXPECT_EQ(identity.text(), "token without a subject");
}

TEST(EscapedText, NeverExceedsItsLimit) {
  const std::string text = std::string(40, 'a') + "\n\n\\" + std::string(40, 'b');
  for (std::size_t limit = 0; limit < 120; ++limit) {
    std::string line = "> ";
    append_escaped(line, text, limit);
    EXPECT_LE(line.size(), limit + 2);
    if (limit >= 40 + 3 * 4 + 40) {
      EXPECT_EQ(line, "> " + std::string(40, 'a') + "\\x0a\\x0a\\x5c" + std::string(40, 'b'));
    } else if (limit >= 3) {
      EXPECT_TRUE(line.ends_with("..."));
    }
  }
}

}  // namespace hawser::identities
