#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/http_client.h"
#include "protocol/http1/gzip.h"
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
      auto writing = writer.write(part);
      if (const Result<void> written = co_await std::move(writing); !written) co_return;
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
    auto reading = body.read();
    const Result<std::string> part = co_await std::move(reading);
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
      auto reading = body.read();
      const Result<std::string> part = co_await std::move(reading);
      if (!part || part->empty()) co_return;
      auto writing = writer.write(*part);
      if (const Result<void> written = co_await std::move(writing); !written) co_return;
    }
  };
  co_return response;
}
Task<HttpResponse> hang(HttpRequest& request) {
  auto sleeping = request.loop().sleep(1h, request.token());
  static_cast<void>(co_await std::move(sleeping));
  co_return HttpResponse{};
}
Task<HttpResponse> bomb(HttpRequest&) {
  HttpResponse response;
  response.body = http1::gzip(as_bytes(std::string(20 << 20, '\0'))).value_or("");
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
        AWAIT(stream, client.open(get_of(url(std::string(path) + std::to_string(bytes)))));
        REQUIRE_OK(stream);
        EXPECT_EQ(stream->status(), 200);
        EXPECT_EQ(stream->header("content-type"), "text/plain; charset=utf-8");
        AWAIT(body, read_all(*stream));
        REQUIRE_OK(body);
        EXPECT_TRUE(*body == (path == "/whole?" ? text_of(bytes) : streams::downloaded(bytes))) << bytes;
        AWAIT(again, stream->read());
        EXPECT_EQ(again, "") << "the end stays the end";
        AWAIT(status, stream->wait_status());
        EXPECT_EQ(status, 200);
        EXPECT_EQ(client.idle_connections(), 1U);
      }
    }
    AWAIT(missing, client.open(get_of(url("/missing"))));
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
        AWAIT(stream, client.open(get_of(url("/download?3000000"))));
        REQUIRE_OK(stream);
        std::size_t bytes = 0;
        for (;;) {
          AWAIT(part, stream->read());
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

TEST_F(HttpClientStreams, CompressedResponses) {
  if (!http1::can_gzip()) GTEST_SKIP() << "built without zlib";
  with_client([this](HttpClient& client) -> Task<void> {
    for (const std::string_view path : {"/download?", "/whole?"}) {
      for (const std::size_t bytes : {0U, 2000U, 1'000'000U}) {
        const std::string text = path == "/whole?" ? text_of(bytes) : streams::downloaded(bytes);
        HttpClientRequest request = get_of(url(std::string(path) + std::to_string(bytes)));
        request.gzip = true;
        AWAIT(stream, client.open(request));
        REQUIRE_OK(stream);
        EXPECT_EQ(stream->header("content-encoding"), std::nullopt);
        EXPECT_EQ(stream->header("vary").has_value(), path == "/download?" || bytes != 0) << "it was compressed";
        AWAIT(body, read_all(*stream));
        REQUIRE_OK(body);
        EXPECT_TRUE(*body == text) << bytes;
        AWAIT(sent, client.send(request));
        REQUIRE_OK(sent);
        EXPECT_TRUE(sent->body == text) << bytes;
        EXPECT_EQ(sent->header("content-encoding"), std::nullopt);
        request.method = "HEAD";
        AWAIT(head, client.open(request));
        REQUIRE_OK(head);
        AWAIT(nothing, head->read());
        EXPECT_EQ(nothing, "");
      }
    }
    // Without `gzip` the client shows what was sent.
    HttpClientRequest request = get_of(url("/whole?5000"));
    request.headers.emplace_back("Accept-Encoding", "gzip");
    AWAIT(raw, client.send(request));
    REQUIRE_OK(raw);
    EXPECT_EQ(raw->header("content-encoding"), "gzip");
    request.gzip = true;
    AWAIT(refused, client.open(request));
    EXPECT_ERROR(refused, invalid_argument, "Accept-Encoding itself");
    EXPECT_EQ(client.idle_connections(), 1U);
  });
  EXPECT_EQ(server_->counters().connections_accepted, 1U);
}

TEST_F(HttpClientStreams, Bombs) {
  if (!http1::can_gzip()) GTEST_SKIP() << "built without zlib";
  HttpClientOptions options;
  options.stream_bytes_max = 1 << 20;
  options.body_bytes_max = 1 << 20;
  with_client(
      [this](HttpClient& client) -> Task<void> {
        HttpClientRequest request = get_of(url("/bomb"));
        request.gzip = true;
        AWAIT(stream, client.open(request));
        REQUIRE_OK(stream);
        std::string arrived;
        AWAIT(body, read_all(*stream, &arrived));
        EXPECT_ERROR(body, limit_exceeded, "stream_bytes_max (1048576 bytes)");
        EXPECT_EQ(arrived.size(), std::size_t{1} << 20);
        AWAIT(sent, client.send(request));
        EXPECT_ERROR(sent, limit_exceeded, "body_bytes_max (1048576 bytes)");
        // As it was sent it is short.
        request.gzip = false;
        AWAIT(raw, client.send(request));
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
          AWAIT(stream, client.upload(post_to(url("/count")), upload));
          REQUIRE_OK(stream);
          EXPECT_EQ(stream->status(), 0);
          for (int i = 0; i < parts; ++i) {
            AWAIT(written, stream->write(part));
            REQUIRE_OK(written);
            AWAIT(nothing, stream->write(std::string()));
            REQUIRE_OK(nothing);
          }
          AWAIT(finished, stream->finish());
          REQUIRE_OK(finished);
          AWAIT(again, stream->finish());
          REQUIRE_OK(again);
          AWAIT(more, stream->write(std::string("x")));
          EXPECT_ERROR(more, invalid_argument, "the body is complete");
          AWAIT(status, stream->wait_status());
          EXPECT_EQ(status, 200);
          AWAIT(body, read_all(*stream));
          EXPECT_EQ(body, std::to_string(bytes) + " " + (chunked ? "chunked" : std::to_string(bytes)));
          EXPECT_EQ(client.idle_connections(), 1U) << "it takes the place of the unused connection";
        }
      }
    }
  });
}

TEST_F(HttpClientStreams, WrongUses) {
  with_client([this](HttpClient& client) -> Task<void> {
    AWAIT(opened, client.open(get_of(url("/whole?10"))));
    REQUIRE_OK(opened);
    AWAIT(written, opened->write(std::string("x")));
    EXPECT_ERROR(written, invalid_argument, "use HttpClient::upload()");
    HttpClientRequest with_body = post_to(url("/count"));
    with_body.body = "x";
    AWAIT(refused, client.upload(with_body));
    EXPECT_ERROR(refused, invalid_argument, "HttpClientRequest::body");
    AWAIT(wrong, client.open(get_of("nowhere")));
    EXPECT_ERROR(wrong, invalid_argument, "the URL");
    AWAIT(stream, client.upload(post_to(url("/count")), {.length = 10}));
    REQUIRE_OK(stream);
    AWAIT(too_long, stream->write(std::string("12345678901")));
    EXPECT_ERROR(too_long, invalid_argument, "HttpUpload::length is 10, of which 10 bytes are left");
    AWAIT(five, stream->write(std::string("12345")));
    EXPECT_OK(five);
    AWAIT(too_short, stream->finish());
    EXPECT_ERROR(too_short, invalid_argument, "of which 5 bytes are left");
    // None of this has ended the request.
    AWAIT(rest, stream->write(std::string("67890")));
    EXPECT_OK(rest);
    Scope scope;
    scope.spawn([](HttpClientStream& used) -> Task<void> {
      AWAIT(body, read_all(used));
      EXPECT_EQ(body, "10 10");
    }(*stream));
    AWAIT(second, stream->read());
    EXPECT_ERROR(second, invalid_argument, "another operation reads");
    auto joined = scope.join();
    co_await joined;
  });
}

TEST_F(HttpClientStreams, OneReadsWhileAnotherWrites) {
  with_client([this](HttpClient& client) -> Task<void> {
    AWAIT(stream, client.upload(post_to(url("/echo"))));
    REQUIRE_OK(stream);
    constexpr int parts = 300;
    const std::string part = text_of(50'000);
    std::size_t bytes = 0;
    Scope scope;
    scope.spawn([](HttpClientStream& used, std::size_t& count) -> Task<void> {
      for (;;) {
        AWAIT(got, used.read());
        REQUIRE_OK(got);
        if (got->empty()) co_return;
        count += got->size();
      }
    }(*stream, bytes));
    for (int i = 0; i < parts; ++i) {
      AWAIT(written, stream->write(part));
      REQUIRE_OK(written);
    }
    AWAIT(finished, stream->finish());
    EXPECT_OK(finished);
    auto joined = scope.join();
    co_await joined;
    EXPECT_EQ(bytes, parts * part.size());
    // In turns.
    AWAIT(turns, client.upload(post_to(url("/echo"))));
    REQUIRE_OK(turns);
    for (int i = 0; i < 20; ++i) {
      AWAIT(written, turns->write("ping " + std::to_string(i)));
      REQUIRE_OK(written);
      AWAIT(got, turns->read());
      EXPECT_EQ(got, "ping " + std::to_string(i));
    }
  });
}

TEST_F(HttpClientStreams, RefusedUploads) {
  with_client([this](HttpClient& client) -> Task<void> {
    HttpUpload upload{.length = 1'000'000, .expect_continue = true};
    upload.continue_timeout = 1h;
    AWAIT(asked, client.upload(post_to(url("/refuse")), upload));
    REQUIRE_OK(asked);
    AWAIT(written, asked->write(text_of(1'000'000)));
    EXPECT_ERROR(written, not_sent, "has answered without the rest of the body");
    AWAIT(status, asked->wait_status());
    EXPECT_EQ(status, 413);
    AWAIT(body, read_all(*asked));
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
          AWAIT(stream, client.open(get_of(url("/download?5000000"))));
          REQUIRE_OK(stream);
          kept.emplace(std::move(*stream));
        }
        HttpClientRequest late = get_of(url("/whole?1"));
        late.timeout = 20ms;
        AWAIT(waits, client.open(late));
        EXPECT_ERROR(waits, deadline_exceeded, "it was not sent");
        kept.reset();
        AWAIT(next, client.open(get_of(url("/whole?1"))));
        REQUIRE_OK(next);
        AWAIT(body, read_all(*next));
        EXPECT_EQ(body, "a");
        // The end of the body has released the place, though `next` still exists.
        AWAIT(sent, client.get(url("/whole?2")));
        EXPECT_OK(sent);
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
        AWAIT(hangs, client.open(request));
        EXPECT_ERROR(hangs, deadline_exceeded, "within HttpClientRequest::timeout");
        // The deadline holds while nobody reads.
        AWAIT(warm, client.get(url("/whole?1")));
        EXPECT_OK(warm);
        request = get_of(url("/download?50000000"));
        request.timeout = 100ms;
        AWAIT(stream, client.open(request));
        if (stream) {  // On a very slow machine it may be late already.
          auto pause = Loop::current()->sleep(150ms);
          co_await pause;
          AWAIT(read, stream->read());
          EXPECT_ERROR(read, deadline_exceeded, "it may have been executed");
          AWAIT(again, stream->read());
          EXPECT_ERROR(again, deadline_exceeded, "it may have been executed");
        }
        // Nobody answers an upload that is not complete.
        AWAIT(upload, client.upload(post_to(url("/count"))));
        REQUIRE_OK(upload);
        AWAIT(status, upload->wait_status());
        EXPECT_ERROR(status, deadline_exceeded, "HttpClientOptions::stall_timeout");
        AWAIT(write, upload->write(std::string("x")));
        EXPECT_ERROR(write, deadline_exceeded, "HttpClientOptions::stall_timeout");
      },
      options);
}

}  // namespace hawser::http_client_test
