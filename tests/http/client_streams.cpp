#include <gtest/gtest.h>

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/http_client.h"
#include "protocol/http/gzip.h"
#include "tests/at_rest.h"
#include "tests/http/stream_tools.h"

// HttpClientStream against a server of this library.
namespace hawser::http_client_test {

namespace streams {

Task<HttpResponse> download(HttpRequest& request) {
  HttpResponse response;
  const std::size_t bytes = std::stoul(std::string(request.query()));
  if (request.header("x-close")) response.headers.emplace_back("Connection", "close");
  response.stream = [bytes](HttpBodyWriter& writer) -> Task<void> {
    for (std::size_t sent = 0; sent < bytes; sent += 10'000) {
      const std::string part = text_of(std::min<std::size_t>(10'000, bytes - sent));
      if (const Result<void> written = co_await writer.write(part); !written) co_return;
    }
  };
  co_return response;
}
std::string downloaded(std::size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += text_of(std::min<std::size_t>(10'000, bytes - all.size()));
  return all;
}
Task<HttpResponse> whole(HttpRequest& request) {
  HttpResponse response;
  response.body = text_of(std::stoul(std::string(request.query())));
  co_return response;
}
// Answers with the number of bytes and the framing of the body.
Task<HttpResponse> count(HttpRequest& request, HttpBodyReader& body) {
  std::size_t bytes = 0;
  for (;;) {
    const Result<std::string> part = co_await body.read();
    if (!part || part->empty()) break;
    bytes += part->size();
  }
  HttpResponse response;
  response.body = std::to_string(bytes) + " " + std::string(request.header("content-length").value_or("chunked"));
  co_return response;
}
Task<HttpResponse> refuse(HttpRequest&, HttpBodyReader&) {
  HttpResponse response;
  response.status = 413;
  response.body = "too much";
  co_return response;
}
// Sends each part back when it has arrived.
Task<HttpResponse> echo_parts(HttpRequest&, HttpBodyReader& body) {
  HttpResponse response;
  response.stream = [&body](HttpBodyWriter& writer) -> Task<void> {
    for (;;) {
      const Result<std::string> part = co_await body.read();
      if (!part || part->empty()) co_return;
      if (const Result<void> written = co_await writer.write(*part); !written) co_return;
    }
  };
  co_return response;
}
Task<HttpResponse> hang(HttpRequest& request) {
  static_cast<void>(co_await request.loop().sleep(1h, request.token()));
  co_return HttpResponse{};
}
Task<HttpResponse> bomb(HttpRequest&) {
  HttpResponse response;
  response.body = protocol::http::gzip(as_bytes(std::string(20 << 20, '\0'))).value_or("");
  response.headers.emplace_back("Content-Encoding", "gzip");
  co_return response;
}

}  // namespace streams

class HttpClientStreams : public ::testing::Test {
 protected:
  HttpClientStreams() {
    ServerOptions options;
    options.loop.log = no_log();
    server_ = std::make_unique<Server>(options);
    HttpOptions http_options;
    http_options.half_closed_timeout = Duration::zero();
    server_->enable(http(http_options)
                        .route("GET", "/download", streams::download)
                        .route("GET", "/whole", streams::whole)
                        .route("POST", "/count", streams::count)
                        .route("PUT", "/count", streams::count)
                        .route("POST", "/refuse", streams::refuse)
                        .route("POST", "/echo", streams::echo_parts)
                        .route("GET", "/hang", streams::hang)
                        .route("GET", "/bomb", streams::bomb));
    const Result<void> started = server_->start();
    EXPECT_TRUE(started) << error_of(started);
  }
  ~HttpClientStreams() override { expect_rest(*server_); }
  std::string url(std::string_view path) const { return "http://" + server_->address() + std::string(path); }
  std::unique_ptr<Server> server_;
};

TEST_F(HttpClientStreams, DownloadsOverOneConnection) {
  with_client([this](HttpClient& client) -> Task<void> {
    for (const std::size_t bytes : {0U, 1U, 10'000U, 5'000'000U}) {
      for (const std::string_view path : {"/download?", "/whole?"}) {
        auto stream = co_await client.open(get_of(url(std::string(path) + std::to_string(bytes))));
        REQUIRE_OK(stream);
        EXPECT_EQ(stream->status(), 200);
        EXPECT_EQ(stream->header("content-type"), "text/plain; charset=utf-8");
        auto body = co_await read_all(*stream);
        REQUIRE_OK(body);
        EXPECT_TRUE(*body == (path == "/whole?" ? text_of(bytes) : streams::downloaded(bytes))) << bytes;
        auto again = co_await stream->read();
        EXPECT_EQ(again, "") << "the end stays the end";
        auto status = co_await stream->wait_status();
        EXPECT_EQ(status, 200);
        EXPECT_EQ(client.idle_connections(), 1U);
      }
    }
    auto missing = co_await client.open(get_of(url("/missing")));
    REQUIRE_OK(missing);
    EXPECT_EQ(missing->status(), 404);
  });
  EXPECT_EQ(server_->counters().connections_accepted, 1U);
}

TEST_F(HttpClientStreams, PartsAreBounded) {
  HttpClientOptions options;
  options.body_buffer_bytes = 10'000;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        auto stream = co_await client.open(get_of(url("/download?3000000")));
        REQUIRE_OK(stream);
        std::size_t bytes = 0;
        for (;;) {
          auto part = co_await stream->read();
          REQUIRE_OK(part);
          if (part->empty()) break;
          // One receive of the connection may add to the buffer.
          EXPECT_LE(part->size(), 10'000U + 64U * 1024U);
          bytes += part->size();
        }
        EXPECT_EQ(bytes, 3'000'000U);
      },
      options);
}

// Its own callback of the token may run before or behind that of the program.
TEST_F(HttpClientStreams, AStopCallbackMayDestroyTheStream) {
  with_client([this](HttpClient& client) -> Task<void> {
    for (const bool early : {true, false}) {
      std::stop_source stop;
      std::optional<HttpClientStream> held;
      const auto destroy = [&held] { held.reset(); };
      std::optional<std::stop_callback<decltype(destroy)>> callback;
      if (early) callback.emplace(stop.get_token(), destroy);
      HttpClientRequest request = get_of(url("/download?100000000"));
      request.token = stop.get_token();
      auto opened = co_await client.open(request);
      REQUIRE_OK(opened);
      held.emplace(std::move(*opened));
      if (!early) callback.emplace(stop.get_token(), destroy);
      stop.request_stop();
      EXPECT_FALSE(held.has_value());
      const auto next = co_await client.send(get_of(url("/whole?10")));
      REQUIRE_OK(next);
      EXPECT_EQ(next->status, 200);
    }
  });
}

TEST_F(HttpClientStreams, CompressedResponses) {
  if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
  with_client([this](HttpClient& client) -> Task<void> {
    for (const std::string_view path : {"/download?", "/whole?"}) {
      for (const std::size_t bytes : {0U, 2000U, 1'000'000U}) {
        const std::string text = path == "/whole?" ? text_of(bytes) : streams::downloaded(bytes);
        HttpClientRequest request = get_of(url(std::string(path) + std::to_string(bytes)));
        request.gzip = true;
        auto stream = co_await client.open(request);
        REQUIRE_OK(stream);
        EXPECT_EQ(stream->header("content-encoding"), std::nullopt);
        EXPECT_EQ(stream->header("vary").has_value(), path == "/download?" || bytes != 0) << "it was compressed";
        auto body = co_await read_all(*stream);
        REQUIRE_OK(body);
        EXPECT_TRUE(*body == text) << bytes;
        auto sent = co_await client.send(request);
        REQUIRE_OK(sent);
        EXPECT_TRUE(sent->body == text) << bytes;
        EXPECT_EQ(sent->header("content-encoding"), std::nullopt);
        request.method = "HEAD";
        auto head = co_await client.open(request);
        REQUIRE_OK(head);
        auto nothing = co_await head->read();
        EXPECT_EQ(nothing, "");
      }
    }
    // Without `gzip` the client shows what was sent.
    HttpClientRequest request = get_of(url("/whole?5000"));
    request.headers.emplace_back("Accept-Encoding", "gzip");
    auto raw = co_await client.send(request);
    REQUIRE_OK(raw);
    EXPECT_EQ(raw->header("content-encoding"), "gzip");
    request.gzip = true;
    auto refused = co_await client.open(request);
    EXPECT_ERROR(refused, invalid_argument, "Accept-Encoding itself");
    EXPECT_EQ(client.idle_connections(), 1U);
  });
  EXPECT_EQ(server_->counters().connections_accepted, 1U);
}

TEST_F(HttpClientStreams, Bombs) {
  if (!protocol::http::can_gzip()) GTEST_SKIP() << "built without zlib";
  HttpClientOptions options;
  options.stream_bytes_max = 1 << 20;
  options.body_bytes_max = 1 << 20;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        HttpClientRequest request = get_of(url("/bomb"));
        request.gzip = true;
        auto stream = co_await client.open(request);
        REQUIRE_OK(stream);
        std::string arrived;
        auto body = co_await read_all(*stream, &arrived);
        EXPECT_ERROR(body, limit_exceeded, "stream_bytes_max (1048576 bytes)");
        EXPECT_EQ(arrived.size(), std::size_t{1} << 20);
        auto sent = co_await client.send(request);
        EXPECT_ERROR(sent, limit_exceeded, "body_bytes_max (1048576 bytes)");
        // As it was sent it is short.
        request.gzip = false;
        auto raw = co_await client.send(request);
        REQUIRE_OK(raw);
        EXPECT_LT(raw->body.size(), 100'000U);
      },
      options);
}

TEST_F(HttpClientStreams, Uploads) {
  with_client([this](HttpClient& client) -> Task<void> {
    const std::string part = text_of(100'000);
    for (const bool chunked : {true, false}) {
      for (const int parts : {0, 1, 100}) {
        for (const bool expects : {false, true}) {
          const std::uint64_t bytes = static_cast<std::uint64_t>(parts) * part.size();
          HttpUpload upload{.length = chunked ? std::optional<std::uint64_t>() : bytes, .expect_continue = expects};
          upload.continue_timeout = 1h;
          auto stream = co_await client.upload(post_to(url("/count")), upload);
          REQUIRE_OK(stream);
          EXPECT_EQ(stream->status(), 0);
          for (int i = 0; i < parts; ++i) {
            auto written = co_await stream->write(part);
            REQUIRE_OK(written);
            auto nothing = co_await stream->write(std::string());
            REQUIRE_OK(nothing);
          }
          auto finished = co_await stream->finish();
          REQUIRE_OK(finished);
          auto again = co_await stream->finish();
          REQUIRE_OK(again);
          auto more = co_await stream->write(std::string("x"));
          EXPECT_ERROR(more, invalid_argument, "the body is complete");
          auto status = co_await stream->wait_status();
          EXPECT_EQ(status, 200);
          auto body = co_await read_all(*stream);
          EXPECT_EQ(body, std::to_string(bytes) + " " + (chunked ? "chunked" : std::to_string(bytes)));
          EXPECT_EQ(client.idle_connections(), 1U) << "it takes the place of the unused connection";
        }
      }
    }
  });
}

TEST_F(HttpClientStreams, WrongUses) {
  with_client([this](HttpClient& client) -> Task<void> {
    auto opened = co_await client.open(get_of(url("/whole?10")));
    REQUIRE_OK(opened);
    auto written = co_await opened->write(std::string("x"));
    EXPECT_ERROR(written, invalid_argument, "use HttpClient::upload()");
    HttpClientRequest with_body = post_to(url("/count"));
    with_body.body = "x";
    auto refused = co_await client.upload(with_body);
    EXPECT_ERROR(refused, invalid_argument, "HttpClientRequest::body");
    auto wrong = co_await client.open(get_of("nowhere"));
    EXPECT_ERROR(wrong, invalid_argument, "the URL");
    auto stream = co_await client.upload(post_to(url("/count")), {.length = 10});
    REQUIRE_OK(stream);
    auto too_long = co_await stream->write(std::string("12345678901"));
    EXPECT_ERROR(too_long, invalid_argument, "HttpUpload::length is 10, which leaves 10 bytes");
    auto five = co_await stream->write(std::string("12345"));
    EXPECT_OK(five);
    auto too_short = co_await stream->finish();
    EXPECT_ERROR(too_short, invalid_argument, "which leaves 5 bytes");
    // None of this has ended the request.
    auto rest = co_await stream->write(std::string("67890"));
    EXPECT_OK(rest);
    Scope scope;
    scope.spawn([](HttpClientStream& used) -> Task<void> {
      auto body = co_await read_all(used);
      EXPECT_EQ(body, "10 10");
    }(*stream));
    auto second = co_await stream->read();
    EXPECT_ERROR(second, invalid_argument, "another operation reads");
    co_await scope.join();
  });
}

TEST_F(HttpClientStreams, OneReadsWhileAnotherWrites) {
  with_client([this](HttpClient& client) -> Task<void> {
    auto stream = co_await client.upload(post_to(url("/echo")));
    REQUIRE_OK(stream);
    constexpr int parts = 300;
    const std::string part = text_of(50'000);
    std::size_t bytes = 0;
    Scope scope;
    scope.spawn([](HttpClientStream& used, std::size_t& count) -> Task<void> {
      for (;;) {
        auto got = co_await used.read();
        REQUIRE_OK(got);
        if (got->empty()) co_return;
        count += got->size();
      }
    }(*stream, bytes));
    for (int i = 0; i < parts; ++i) {
      auto written = co_await stream->write(part);
      REQUIRE_OK(written);
    }
    auto finished = co_await stream->finish();
    EXPECT_OK(finished);
    co_await scope.join();
    EXPECT_EQ(bytes, parts * part.size());
    // In turns.
    auto turns = co_await client.upload(post_to(url("/echo")));
    REQUIRE_OK(turns);
    for (int i = 0; i < 20; ++i) {
      auto written = co_await turns->write("ping " + std::to_string(i));
      REQUIRE_OK(written);
      auto got = co_await turns->read();
      EXPECT_EQ(got, "ping " + std::to_string(i));
    }
  });
}

TEST_F(HttpClientStreams, RefusedUploads) {
  with_client([this](HttpClient& client) -> Task<void> {
    HttpUpload upload{.length = 1'000'000, .expect_continue = true};
    upload.continue_timeout = 1h;
    auto asked = co_await client.upload(post_to(url("/refuse")), upload);
    REQUIRE_OK(asked);
    auto written = co_await asked->write(text_of(1'000'000));
    EXPECT_ERROR(written, not_sent, "has answered without the rest of the body");
    auto status = co_await asked->wait_status();
    EXPECT_EQ(status, 413);
    auto body = co_await read_all(*asked);
    EXPECT_EQ(body, "too much");
    EXPECT_EQ(client.idle_connections(), 0U);
  });
}

TEST_F(HttpClientStreams, PlacesAreReleasedAtTheEnd) {
  HttpClientOptions options;
  options.connections_per_host_max = 1;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        std::optional<HttpClientStream> kept;
        {
          auto stream = co_await client.open(get_of(url("/download?5000000")));
          REQUIRE_OK(stream);
          kept.emplace(std::move(*stream));
        }
        HttpClientRequest late = get_of(url("/whole?1"));
        late.timeout = 20ms;
        auto waits = co_await client.open(late);
        EXPECT_ERROR(waits, deadline_exceeded, "it was not sent");
        kept.reset();
        auto next = co_await client.open(get_of(url("/whole?1")));
        REQUIRE_OK(next);
        auto body = co_await read_all(*next);
        EXPECT_EQ(body, "a");
        // The end of the body has released the place, though `next` still exists.
        auto sent = co_await client.get(url("/whole?2"));
        EXPECT_OK(sent);
      },
      options);
}

// The stream owns what the client has left, and goes on.
TEST_F(HttpClientStreams, TheEndOfTheClientClosesConnectionsWithoutARequest) {
  with_client([this](HttpClient&) -> Task<void> {
    HttpClientOptions options;
    options.request_timeout = options.idle_timeout = options.stall_timeout = forever;
    std::optional<HttpClient> client(std::in_place, *Loop::current(), options);
    auto stream = co_await client->open(get_of(url("/download?5000000")));
    REQUIRE_OK(stream);
    auto other = co_await client->get(url("/whole?1"));
    EXPECT_OK(other);
    EXPECT_EQ(client->idle_connections(), 1U);
    EXPECT_EQ(server_->counters().connections_open, 2U);
    client.reset();
    const bool one =
        co_await eventually(*Loop::current(), [this] { return server_->counters().connections_open == 1; });
    EXPECT_TRUE(one);
    auto body = co_await read_all(*stream);
    EXPECT_TRUE(body == streams::downloaded(5'000'000));
  });
}

TEST_F(HttpClientStreams, AnAssignmentEndsTheStreamBefore) {
  HttpClientOptions options;
  options.request_timeout = options.idle_timeout = options.stall_timeout = forever;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        auto stream = co_await client.upload(post_to(url("/echo")));
        REQUIRE_OK(stream);
        bool ended = false;
        Scope scope;
        scope.spawn([](HttpClientStream& used, bool& done) -> Task<void> {
          auto part = co_await used.read();  // The server waits for a part of this side.
          EXPECT_ERROR(part, cancelled, "ended with its HttpClientStream");
          done = true;
        }(*stream, ended));
        auto next = co_await client.open(get_of(url("/download?10000")));
        REQUIRE_OK(next);
        EXPECT_FALSE(ended);
        *stream = std::move(*next);
        const bool soon = co_await eventually(*Loop::current(), [&] { return ended; });
        EXPECT_TRUE(soon);
        auto body = co_await read_all(*stream);
        EXPECT_TRUE(body == streams::downloaded(10'000));
      },
      options);
}

TEST_F(HttpClientStreams, Deadlines) {
  HttpClientOptions options;
  options.stall_timeout = 20ms;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        HttpClientRequest request = get_of(url("/hang"));
        request.timeout = 20ms;
        auto hangs = co_await client.open(request);
        EXPECT_ERROR(hangs, deadline_exceeded, "within HttpClientRequest::timeout");
        // The deadline holds while nobody reads.
        auto warm = co_await client.get(url("/whole?1"));
        EXPECT_OK(warm);
        request = get_of(url("/download?50000000"));
        request.timeout = 100ms;
        auto stream = co_await client.open(request);
        if (stream) {  // On a very slow machine it may be late already.
          co_await Loop::current()->sleep(150ms);
          auto read = co_await stream->read();
          EXPECT_ERROR(read, deadline_exceeded, "it may have been executed");
          auto again = co_await stream->read();
          EXPECT_ERROR(again, deadline_exceeded, "it may have been executed");
        }
        // Nobody answers an upload that is not complete.
        auto upload = co_await client.upload(post_to(url("/count")));
        REQUIRE_OK(upload);
        auto status = co_await upload->wait_status();
        EXPECT_ERROR(status, deadline_exceeded, "HttpClientOptions::stall_timeout");
        auto write = co_await upload->write(std::string("x"));
        EXPECT_ERROR(write, deadline_exceeded, "HttpClientOptions::stall_timeout");
      },
      options);
}

}  // namespace hawser::http_client_test
