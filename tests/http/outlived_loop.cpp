#include "tests/outlived_loop.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "hawser/http_client.h"
#include "tests/raw_peer.h"

// A request of HttpClient that waits may be destroyed after its loop.
namespace hawser::http_client_test {

using namespace testing_tools;

struct WaitingRequest {
  const char* name;
  std::string_view answer;  // The server sends nothing more.
  Task<void> (*wait)(HttpClient&, std::string url);
};

class HttpClientOutlivedLoop : public ::testing::TestWithParam<WaitingRequest> {};

TEST_P(HttpClientOutlivedLoop, ByARequestThatWaits) {
  for (const bool another : {false, true}) {
    RawListener listener;
    std::optional<RawSocket> accepted;
    std::optional<HttpClient> client;
    const auto prepare = [&](Loop& loop) -> Task<void> {
      client.emplace(loop);
      co_return;
    };
    const auto wait = [&](Loop&) -> Task<void> {
      Scope peer;
      peer.spawn([](RawListener& from, std::optional<RawSocket>& to, std::string_view answer) -> Task<void> {
        co_await Loop::current()->sleep(2ms);
        to.emplace(from.accept());
        to->send(as_bytes(answer));
      }(listener, accepted, GetParam().answer));
      co_await GetParam().wait(*client, "http://" + listener.address() + "/");
    };
    destroy_after_loop(prepare, wait, another);
  }
}

constexpr std::string_view head_without_body = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
INSTANTIATE_TEST_SUITE_P(Requests, HttpClientOutlivedLoop,
                         ::testing::Values(WaitingRequest{"Get", "",
                                                          [](HttpClient& client, std::string url) -> Task<void> {
                                                            auto response = co_await client.get(std::move(url));
                                                          }},
                                           WaitingRequest{"Open", "",
                                                          [](HttpClient& client, std::string url) -> Task<void> {
                                                            HttpClientRequest request;
                                                            request.url = std::move(url);
                                                            auto stream = co_await client.open(std::move(request));
                                                          }},
                                           WaitingRequest{"Read", head_without_body,
                                                          [](HttpClient& client, std::string url) -> Task<void> {
                                                            HttpClientRequest request;
                                                            request.url = std::move(url);
                                                            auto stream = co_await client.open(std::move(request));
                                                            REQUIRE_OK(stream);
                                                            auto part = co_await stream->read();
                                                          }}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace hawser::http_client_test
