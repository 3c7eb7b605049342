#include "hawser/authorization.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/testing.h"

namespace hawser::authorization_test {

using namespace testing_tools;

std::string read_item(Context& context) { return context.identity().text(); }
std::string write_item(Context& context) {
  return std::string(context.metadata().find("authorization").value_or("no token"));
}

Identity named(Identity::Kind kind, std::string subject, std::string spiffe_id = {}) {
  Identity identity;
  identity.kind = kind;
  identity.subject = std::move(subject);
  identity.spiffe_id = std::move(spiffe_id);
  return identity;
}

TEST(Authorization, DeniesByDefaultOnceThereIsARule) {
  Authorization rules;
  const Identity nobody;
  EXPECT_TRUE(rules.allows("any.Method", nobody));
  rules.allow("health.*", anyone());
  rules.allow("storage.Read", authenticated());
  rules.allow("storage.*", spiffe("spiffe://example.org/backup"));
  rules.allow("team.*", spiffe("spiffe://example.org/team/*"));
  EXPECT_TRUE(rules.allows("health.Check", nobody));
  EXPECT_FALSE(rules.allows("health", nobody));
  EXPECT_FALSE(rules.allows("other.Method", nobody));
  EXPECT_FALSE(rules.allows("storage.Read", nobody));
  const Identity alice = named(Identity::Kind::token, "alice");
  EXPECT_TRUE(rules.allows("storage.Read", alice));
  EXPECT_FALSE(rules.allows("storage.ReadAll", alice));
  const Identity backup = named(Identity::Kind::certificate, "CN=b", "spiffe://example.org/backup");
  EXPECT_TRUE(rules.allows("storage.Delete", backup));
  EXPECT_FALSE(rules.allows("team.Get", backup));
  EXPECT_TRUE(rules.allows("team.Get", named(Identity::Kind::token, "", "spiffe://example.org/team/a")));
  EXPECT_FALSE(rules.allows("team.Get", named(Identity::Kind::token, "", "spiffe://example.org/team/")));
  EXPECT_FALSE(rules.allows("team.Get", named(Identity::Kind::token, "", "spiffe://example.org/teams/a")));
}

TEST(Authorization, Conditions) {
  Identity process;
  process.kind = Identity::Kind::unix_peer;
  process.uid = 1000;
  process.gid = 100;
  EXPECT_TRUE(uid(1000)(process));
  EXPECT_FALSE(uid(0)(process));
  EXPECT_TRUE(gid(100)(process));
  EXPECT_FALSE(uid(Identity::no_user)(Identity()));
  Identity token = named(Identity::Kind::token, "alice");
  token.claims = {{"group", "a"}, {"group", "admins"}};
  EXPECT_TRUE(claim("group", "admins")(token));
  EXPECT_FALSE(claim("group", "admin")(token));
  token.kind = Identity::Kind::certificate;
  EXPECT_FALSE(claim("group", "admins")(token));
  EXPECT_THROW(certificate_subject(""), std::invalid_argument);
  EXPECT_THROW(token_subject("", "issuer"), std::invalid_argument);
  EXPECT_THROW(shared_key(""), std::invalid_argument);
  EXPECT_THROW(spiffe("example.org"), std::invalid_argument);
  Authorization rules;
  EXPECT_THROW(rules.allow("a*b", anyone()), std::invalid_argument);
  EXPECT_THROW(rules.allow("a", Who()), std::invalid_argument);
}

// Whoever issues proofs of one kind may use a name that means somebody else in another kind.
TEST(Authorization, ANameCountsForOneKindOfProof) {
  using Kind = Identity::Kind;
  const std::vector<std::pair<Kind, Who>> conditions = {{Kind::certificate, certificate_subject("storage")},
                                                        {Kind::token, token_subject("storage")},
                                                        {Kind::shared_key, shared_key("storage")}};
  for (const Kind kind : {Kind::none, Kind::unix_peer, Kind::certificate, Kind::token, Kind::shared_key}) {
    for (const auto& [of, who] : conditions) {
      EXPECT_EQ(who(named(kind, "storage")), kind == of) << to_string(kind) << " for " << to_string(of);
      for (const std::string& other : {std::string("Storage"), std::string("storage "), std::string("storage\0", 8),
                                       std::string("storage\n"), std::string("CN=storage"), std::string()}) {
        EXPECT_FALSE(who(named(kind, other))) << to_string(kind) << " " << other;
      }
    }
  }
  Identity token = named(Kind::token, "storage");
  token.issuer = "https://login.example.org";
  EXPECT_TRUE(token_subject("storage", "https://login.example.org")(token));
  EXPECT_FALSE(token_subject("storage", "https://login.example.com")(token));
  token.issuer.clear();
  EXPECT_FALSE(token_subject("storage", "https://login.example.org")(token));
}

TEST(Authorization, SpellingsOfSpiffeIds) {
  const std::vector<std::string> right = {"spiffe://example.org/storage",
                                          "spiffe://example.org/a/B/c.d-e_1",
                                          "spiffe://example.org",
                                          "spiffe://10.0.0.1/...",
                                          "spiffe://" + std::string(255, 'd') + "/a",
                                          "spiffe://d/" + std::string(2037, 'p')};
  for (const std::string& good : right) {
    EXPECT_TRUE(valid_spiffe_id(good)) << good;
  }
  const std::vector<std::string> wrong = {"",
                                          "spiffe://",
                                          "spiffe:///storage",
                                          "SPIFFE://example.org/a",
                                          "spiffe:/example.org/a",
                                          "spiffe://Example.org/a",
                                          "spiffe://example.org/",
                                          "spiffe://example.org/a/",
                                          "spiffe://example.org//a",
                                          "spiffe://example.org/a/../b",
                                          "spiffe://example.org/.",
                                          "spiffe://example.org/..",
                                          "spiffe://example.org:443/a",
                                          "spiffe://user@example.org/a",
                                          "spiffe://example.org/a?b",
                                          "spiffe://example.org/a#b",
                                          "spiffe://example.org/%61",
                                          "spiffe://example.org/a b",
                                          std::string("spiffe://example.org/a\0", 23),
                                          "spiffe://example.org/a\n",
                                          "spiffe://example.org/*",
                                          "spiffe://ex\xc3\xa4mple.org/a",
                                          " spiffe://example.org/a",
                                          "spiffe://" + std::string(256, 'd'),
                                          "spiffe://d/" + std::string(2038, 'p')};
  for (const std::string& bad : wrong) {
    EXPECT_FALSE(valid_spiffe_id(bad)) << bad;
    if (bad != "spiffe://example.org/*") {
      EXPECT_THROW(spiffe(bad), std::invalid_argument) << bad;
    }
  }
  EXPECT_THROW(spiffe("spiffe://example.org/a*"), std::invalid_argument);
  EXPECT_THROW(spiffe("spiffe://*"), std::invalid_argument);
  const Who team = spiffe("spiffe://example.org/team/*");
  const Who all = spiffe("spiffe://example.org/*");
  EXPECT_TRUE(team(named(Identity::Kind::certificate, "", "spiffe://example.org/team/a/b")));
  EXPECT_TRUE(all(named(Identity::Kind::certificate, "", "spiffe://example.org/a")));
  EXPECT_FALSE(all(named(Identity::Kind::certificate, "", "spiffe://example.org")));
  for (const char* const other : {"spiffe://example.org/team/../admin", "spiffe://example.org/team/",
                                  "spiffe://example.org/team//a", "spiffe://example.org.evil/team/a"}) {
    EXPECT_FALSE(team(named(Identity::Kind::certificate, "", other))) << other;
  }
}

TEST(BearerTokens, ComparesWhole) {
  const std::string secret = "0123456789abcdef";
  EXPECT_TRUE(equal_in_constant_time(secret, secret));
  for (const std::string& other : {std::string(), secret + "0", secret + secret, secret.substr(1), std::string("x")}) {
    EXPECT_FALSE(equal_in_constant_time(other, secret)) << other;
  }
  EXPECT_FALSE(equal_in_constant_time("x", ""));
  BearerTokens tokens;
  EXPECT_THROW(tokens.add("short", {}), std::invalid_argument);
  tokens.add(secret, named(Identity::Kind::none, "alice"));
  EXPECT_THROW(tokens.add(secret, {}), std::invalid_argument);
  ASSERT_NE(tokens.find(secret), nullptr);
  EXPECT_EQ(tokens.find(secret)->text(), "token alice");
  EXPECT_EQ(tokens.find("0123456789abcdee"), nullptr);
}

class Guarded : public ::testing::Test {
 protected:
  template <class Body>
  void run(std::string listen, Body body) {
    ServerOptions options;
    options.listen = std::move(listen);
    server = std::make_unique<Server>(loop, options);
    server->use(BearerTokens().add("alice-0123456789abc", named(Identity::Kind::token, "alice")));
    server->use(Authorization({.log_allowed = true, .log_lines_per_second_max = 5})
                    .allow(method_name<read_item>, authenticated())
                    .allow(method_name<write_item>, token_subject("alice")));
    server->register_handler<read_item, write_item>();
    ASSERT_TRUE(server->start());
    loop.run([](Loop& here, std::string address, Body& use) -> Task<void> {
      Client client(here, {.transports = {.required = "stream"}});
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      co_await use(client);
    }(loop, server->address(), body));
    server.reset();
  }
  static CallOptions with(std::string authorization) {
    return {.metadata = {{"authorization", std::move(authorization)}}};
  }

  std::vector<std::string> audit;
  Loop loop{LoopOptions{.log = [this](LogLevel, std::string_view component, std::string_view text) {
    if (component == "audit") audit.emplace_back(text);
  }}};
  std::unique_ptr<Server> server;
};

TEST_F(Guarded, ByToken) {
  run("127.0.0.1:0", [this](Client& client) -> Task<void> {
    auto nobody = co_await client.call<read_item>();
    EXPECT_ERROR(nobody, unauthenticated, "send a token");
    const CallOptions for_unknown = with("Bearer alice-0123456789abd");
    auto unknown = co_await client.call<read_item>(for_unknown);
    EXPECT_ERROR(unknown, unauthenticated, "does not know this token");
    EXPECT_EQ(unknown.error().text.find("alice-"), std::string::npos);
    const CallOptions for_other = with("Basic alice-0123456789abc");
    auto other = co_await client.call<read_item>(for_other);
    EXPECT_ERROR(other, unauthenticated, "send a token");
    const CallOptions for_read = with("bearer  alice-0123456789abc ");
    auto read = co_await client.call<read_item>(for_read);
    EXPECT_EQ(read, "token alice");
    const CallOptions for_written = with("Bearer alice-0123456789abc");
    auto written = co_await client.call<write_item>(for_written);
    EXPECT_EQ(written, "no token");
    REQUIRE(audit.size() == 5);
    EXPECT_TRUE(audit[0].starts_with("refused " + std::string(method_name<read_item>) + " over hawser by nobody at "));
    EXPECT_TRUE(audit[1].ends_with(": the server does not know this token")) << audit[1];
    EXPECT_EQ(audit[1].find("alice-"), std::string::npos);
    EXPECT_TRUE(
        audit[3].starts_with("allowed " + std::string(method_name<read_item>) + " over hawser by token alice at "));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; ++i) {
      auto again = co_await client.call<read_item>();
      EXPECT_FALSE(again);
    }
    // Five, and a line about the others, in each second that began meanwhile.
    const auto seconds = std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now() - begin).count() + 2;
    EXPECT_LE(audit.size(), 5 + 6 * static_cast<std::size_t>(seconds));
    // The refused calls do not hide an allowed one.
    const CallOptions for_last = with("Bearer alice-0123456789abc");
    auto last = co_await client.call<write_item>(for_last);
    EXPECT_OK(last);
    EXPECT_TRUE(audit.back().starts_with("allowed " + std::string(method_name<write_item>))) << audit.back();
  });
}

TEST_F(Guarded, ByProcess) {
  run("unix:@hawser-guarded-" + std::to_string(getpid()), [](Client& client) -> Task<void> {
    auto read = co_await client.call<read_item>();
    EXPECT_OK(read);
    auto written = co_await client.call<write_item>();
    EXPECT_ERROR(written, permission_denied, "unix uid " + std::to_string(geteuid()));
  });
}

}  // namespace hawser::authorization_test
