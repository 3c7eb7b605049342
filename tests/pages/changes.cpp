#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/temporary_folder.h"
#include "hawser/authorization.h"
#include "hawser/change_option.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "tests/testing.h"

// An address alone does not permit changes: a token, an identity or a Unix socket does.
namespace hawser::pages_test {
namespace {

using ::testing::HasSubstr;

class PageChanges : public ::testing::Test {
 protected:
  void start(PagesOptions pages, std::string listen = "127.0.0.1:0", bool authenticates = false) {
    ServerOptions options;
    options.listen = std::move(listen);
    options.loop.log = no_log();
    changed = std::make_unique<Server>(options);
    if (authenticates) {
      changed->use(BearerTokens()
                       .add("token of the operator", Identity{.subject = "operator"})
                       .add("token of a customer", Identity{.subject = "customer"}));
    }
    enable_pages(*changed, std::move(pages));
    const Result<void> started = changed->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // The status of a request that changes an option, and its text.
  std::string change(HttpClientRequest request = {}) {
    request.method = "POST";
    request.url = "http://127.0.0.1/options/change?name=calls_max" + std::string(in_body ? "" : "&value=1234");
    request.address = changed->address();
    std::string answer;
    sync_wait([](HttpClientRequest asked, std::string& to) -> Task<void> {
      HttpClient client(*Loop::current());
      const Result<HttpClientResponse> response = co_await client.send(std::move(asked));
      EXPECT_TRUE(response) << error_of(response);
      if (response) to = std::to_string(response->status) + " " + response->body;
    }(std::move(request), answer));
    return answer;
  }
  std::string change_with(std::string name, std::string value) {
    HttpClientRequest request;
    request.headers = {{std::move(name), std::move(value)}};
    return change(std::move(request));
  }

  TemporaryFolder folder;
  std::unique_ptr<Server> changed;
  bool in_body = false;
};

TEST_F(PageChanges, AnAddressAloneDoesNotChange) {
  start({});
  EXPECT_THAT(change(), HasSubstr("403 a change needs a proof"));
  EXPECT_THAT(change_with("Hawser-Token", ""), HasSubstr("403"));
  EXPECT_THAT(change_with("Hawser-Token", "0123456789abcdef"), HasSubstr("403 this server has no token"));
  EXPECT_THAT(change_with("X-Unknown-Proxy", "1"), HasSubstr("403"));
  start({.changes = PageAccess::all});
  EXPECT_THAT(change(), HasSubstr("403 a change needs a proof"));
}

TEST_F(PageChanges, TheTokenOfTheProgramChanges) {
  start({.change_token = "0123456789abcdef"});
  for (const char* const wrong : {"", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", "x"}) {
    EXPECT_THAT(change_with("Hawser-Token", wrong), HasSubstr("403")) << wrong;
  }
  EXPECT_THAT(change_with("Hawser-Token", "0123456789abcdef"), HasSubstr("200 option calls_max is 1234"));
  // The form of the page; a body may have it, a target may not, since targets are logged.
  in_body = true;
  HttpClientRequest form;
  form.headers = {{"Content-Type", "application/x-www-form-urlencoded"}};
  form.body = "value=99&token=0123456789abcdef";
  EXPECT_THAT(change(form), HasSubstr("200 option calls_max is 99"));
  form.body = "value=98&token=0123456789abcdee";
  EXPECT_THAT(change(form), HasSubstr("403 the token is wrong"));
  // A proxy that holds no token cannot change, and one that forwards the token of a client is still a proxy.
  HttpClientRequest forwarded;
  forwarded.headers = {{"Hawser-Token", "0123456789abcdef"}, {"X-Forwarded-Ssl", "on"}};
  EXPECT_THAT(change(forwarded), HasSubstr("403"));
}

TEST_F(PageChanges, TheFileOfTheTokenIsMadeAndReadAgain) {
  const std::string path = folder.path().string() + "/token";
  start({.change_token_file = path});
  struct stat facts{};
  ASSERT_EQ(::stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
  std::string token;
  std::getline(std::ifstream(path), token);
  EXPECT_EQ(token.size(), 32U);
  EXPECT_THAT(change_with("Hawser-Token", token), HasSubstr("200 option"));
  // Another server, or this one after a restart.
  start({.change_token_file = path});
  EXPECT_THAT(change_with("Hawser-Token", token), HasSubstr("200 option"));
  EXPECT_NE(new_change_token(), new_change_token());
}

TEST_F(PageChanges, ATokenThatOthersKnowIsRefused) {
  Server server;
  EXPECT_THROW(enable_pages(server, {.change_token = "short"}), std::invalid_argument);
  const std::string path = folder.path().string() + "/token";
  std::ofstream(path) << "0123456789abcdef\n";
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_THROW(enable_pages(server, {.change_token_file = path}), std::runtime_error);
  EXPECT_THROW(enable_pages(server, {.change_token_file = folder.path().string() + "/none/token"}), std::runtime_error);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  std::ofstream(path) << "\n";
  EXPECT_THROW(enable_pages(server, {.change_token_file = path}), std::invalid_argument);
}

TEST_F(PageChanges, AnOperatorChangesByItsIdentity) {
  start({.operators = token_subject("operator")}, "127.0.0.1:0", true);
  EXPECT_THAT(change(), HasSubstr("403"));
  EXPECT_THAT(change_with("Authorization", "Bearer token of a customer"), HasSubstr("403"));
  EXPECT_THAT(change_with("Authorization", "Bearer token of the operator"), HasSubstr("200 option"));
}

TEST_F(PageChanges, TheUserOfTheServerChangesThroughAUnixSocket) {
  const std::string path = "unix:" + folder.path().string() + "/socket";
  start({}, path);
  EXPECT_THAT(change(), HasSubstr("200 option"));
  EXPECT_THAT(change_with("X-Forwarded-For", "1.2.3.4"), HasSubstr("403")) << "a proxy at the socket";
  changed.reset();
  start({.operators = uid(::geteuid() + 1)}, path);
  EXPECT_THAT(change(), HasSubstr("403"));
}

}  // namespace
}  // namespace hawser::pages_test
