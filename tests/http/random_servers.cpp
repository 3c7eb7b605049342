#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/http_client.h"
#include "protocol/http/gzip.h"
#include "tests/http/stream_tools.h"

// HttpClientStream against servers that answer at random, from a seed.
namespace hawser::http_client_test {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t end) { return random() % end; }

// A response that is correct in most cases.
std::string random_response(Random& random) {
  std::string body(below(random, 4) == 0 ? below(random, 400'000) : below(random, 3000), '\0');
  for (char& c : body) c = static_cast<char>('a' + random() % 4);
  std::string head = "HTTP/1.1 200 OK\r\nName: value\r\n";
  if (below(random, 4) == 0) head = "HTTP/1.1 100 Continue\r\n\r\n" + head;
  if (below(random, 2) == 0) {
    if (const std::optional<std::string> packed = protocol::http::gzip(as_bytes(body))) {
      body = *packed;
      head += "Content-Encoding: gzip\r\n";
    }
  }
  switch (below(random, 4)) {
    case 0: return head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    case 1: return head + "\r\n" + body;
    case 2: return head + "Connection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    default: break;
  }
  std::string text = head + "Transfer-Encoding: chunked\r\n\r\n";
  while (!body.empty()) {
    const std::size_t size = 1 + below(random, body.size());
    char line[40];
    std::snprintf(line, sizeof line, "%zx%s\r\n", size, below(random, 3) == 0 ? ";a=b" : "");
    text += line + body.substr(0, size) + "\r\n";
    body.erase(0, size);
  }
  return text + "0\r\n" + (below(random, 2) == 0 ? "T: v\r\n" : "") + "\r\n";
}

void damage(Random& random, std::string& text) {
  for (std::size_t faults = below(random, 4); faults != 0 && !text.empty(); --faults) {
    const std::size_t at = below(random, below(random, 2) == 0 ? std::min<std::size_t>(text.size(), 200) : text.size());
    switch (below(random, 4)) {
      case 0: text[at] = static_cast<char>(random()); break;
      case 1: text.erase(at, 1 + below(random, 20)); break;
      case 2: text.insert(at, text.substr(below(random, text.size()), below(random, 100))); break;
      default: text.resize(at); break;
    }
  }
}

// Answers at random, and ends the connection in some way.
void serve_at_random(RawSocket& socket, Random& random, const std::atomic<bool>& over) {
  while (!over.load()) {
    if (below(random, 8) != 0 && !socket.receive(1 + below(random, 40))) return;
    std::string text = random_response(random);
    if (below(random, 2) == 0) damage(random, text);
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t size = std::min(rest.size(), 1 + below(random, below(random, 2) == 0 ? 50 : 100'000));
      if (!socket.send(as_bytes(rest.substr(0, size)), 50ms)) return socket.reset();
      rest.remove_prefix(size);
      if (below(random, 30) == 0) std::this_thread::sleep_for(200us);
      if (rest.size() < 100'000 && below(random, 60) == 0) return below(random, 2) == 0 ? socket.reset() : void();
    }
    if (below(random, 3) != 0) return;
  }
}

Task<void> read_at_random(std::optional<HttpClientStream>& stream, Random& random) {
  while (stream) {
    auto part = co_await stream->read();
    if (!part || part->empty()) co_return;
    if (below(random, 5) == 0) {
      co_await Loop::current()->sleep(std::chrono::microseconds(below(random, 300)));
    }
  }
}
Task<void> write_at_random(std::optional<HttpClientStream>& stream, Random& random, const std::string& text) {
  for (std::size_t parts = below(random, 10); parts != 0 && stream; --parts) {
    auto written = co_await stream->write(std::string_view(text).substr(0, below(random, text.size())));
    if (!written) co_return;
  }
  if (!stream) co_return;
  auto finished = co_await stream->finish();
}

Task<void> request_at_random(HttpClient& client, Random& random, std::string url, const std::string& text) {
  std::stop_source stop;
  HttpClientRequest request = below(random, 2) == 0 ? get_of(std::move(url)) : post_to(std::move(url));
  request.gzip = below(random, 2) == 0;
  request.token = stop.get_token();
  request.timeout = 300ms;
  std::optional<HttpClientStream> stream;
  if (below(random, 5) == 0) {
    auto sent = co_await client.send(request);
    co_return;
  }
  if (below(random, 2) == 0) {
    HttpUpload upload{.expect_continue = below(random, 3) == 0};
    upload.continue_timeout = 1ms;
    auto begun = co_await client.upload(request, upload);
    if (!begun) co_return;
    stream.emplace(std::move(*begun));
  } else {
    auto begun = co_await client.open(request);
    if (!begun) co_return;
    stream.emplace(std::move(*begun));
  }
  Scope scope;
  scope.spawn(read_at_random(stream, random));
  scope.spawn(write_at_random(stream, random, text));
  if (below(random, 2) == 0) {
    co_await scope.join();
    co_return;
  }
  co_await Loop::current()->sleep(std::chrono::microseconds(below(random, 2000)));
  switch (below(random, 4)) {
    case 0: stop.request_stop(); break;
    case 1: scope.clear(); break;
    case 2: stream.reset(); break;
    default: co_return;
  }
  if (stream) stream.reset();
  co_await scope.join();
}

// The requests end, and nothing that they used is used afterwards: the sanitizers see the rest.
// HAWSER_HTTP_SEEDS: the number of runs.
TEST(HttpClientStreamRandom, ServersThatAnswerAtRandom) {
  const char* const given = std::getenv("HAWSER_HTTP_SEEDS");
  const unsigned seeds = given == nullptr ? 2 : static_cast<unsigned>(std::atoi(given));
  const std::string text = text_of(300'000);
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::atomic<bool> over{false};
    HandServer server([&](RawSocket& socket, int number) {
      Random random(seed * 1000 + static_cast<unsigned>(number));
      serve_at_random(socket, random, over);
    });
    HttpClientOptions options;
    options.stall_timeout = 30ms;
    // The server serves one connection after another: an unused one must not keep it from the next.
    options.idle_timeout = 5ms;
    options.connections_per_host_max = 2;
    options.body_buffer_bytes = 1 + seed % 3 * 50'000;
    int ended = 0;
    with_client(
        [&](HttpClient& client) -> Task<void> {
          Random random(seed);
          for (int i = 0; i < 20; ++i) {
            Scope scope;
            for (int k = 0; k < 3; ++k) {
              scope.spawn([](HttpClient& used, Random& with, std::string url, const std::string& body,
                             int& count) -> Task<void> {
                co_await request_at_random(used, with, std::move(url), body);
                ++count;
              }(client, random, server.url(), text, ended));
            }
            co_await scope.join();
          }
        },
        options);
    over = true;
    EXPECT_EQ(ended, 60);
  }
}

}  // namespace hawser::http_client_test
