#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/http_client.h"
#include "protocol/http/gzip.h"
#include "tests/http/stream_tools.h"

// HttpClientStream against servers that are slow, broken or hostile, and its lifetime.
namespace hawser::http_client_test {

constexpr std::string_view chunked_head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string chunk_of(std::string_view text) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + std::string(text) + "\r\n";
}

TEST(HttpClientStreamAlone, ResponsesArriveByteByByte) {
  const std::string packed =
      protocol::http::can_gzip() ? *protocol::http::gzip(as_bytes(std::string(3000, 'x'))) : std::string();
  const std::string coded = protocol::http::can_gzip() ? "Content-Encoding: gzip\r\n" : "";
  const std::string long_body = protocol::http::can_gzip() ? std::string(3000, 'x') : "";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {ok("hello"), "hello"},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + ok("after"), "after"},
      {std::string(chunked_head) + "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: v\r\nU: w\r\n\r\n", "abcde"},
      {"HTTP/1.1 204 No\r\n\r\n", ""},
      {ok(packed, coded), long_body},
      {"HTTP/1.1 200 OK\r\n" + coded + "Transfer-Encoding: chunked\r\n\r\n" +
           (packed.empty() ? "" : chunk_of(packed.substr(0, 5)) + chunk_of(packed.substr(5))) + "0\r\n\r\n",
       long_body},
  };
  for (const std::size_t piece : {std::size_t{1}, std::size_t{3}}) {
    HandServer server([&](RawSocket& socket, int) {
      for (const auto& [answer, body] : cases) {
        if (socket.receive_text("\r\n\r\n").empty()) return;
        for (std::size_t at = 0; at < answer.size(); at += piece) {
          socket.send(as_bytes(std::string_view(answer).substr(at, piece)));
          std::this_thread::sleep_for(100us);
        }
      }
      socket.closed_by_peer();
    });
    with_client([&](HttpClient& client) -> Task<void> {
      for (const auto& [answer, body] : cases) {
        HttpClientRequest request = get_of(server.url());
        request.gzip = true;
        auto stream = co_await client.open(request);
        REQUIRE_OK(stream);
        auto got = co_await read_all(*stream);
        EXPECT_EQ(got, body);
      }
      EXPECT_EQ(client.idle_connections(), 1U);
    });
    EXPECT_EQ(server.connections(), 1);
  }
}

TEST(HttpClientStreamAlone, BodiesThatCannotBeUsed) {
  struct Case {
    std::string answer;
    ErrorCode code;
    std::string_view text;
    std::string arrives = {};
    bool closes = false;
    bool gzip = false;
  };
  const std::string head(chunked_head);
  std::string trailers;
  for (int i = 0; i < 200; ++i) trailers += "T" + std::to_string(i) + ": v\r\n";
  std::string extensions;
  for (int i = 0; i < 200; ++i) extensions += "1;name=value-of-this\r\nx\r\n";
  std::vector<Case> cases = {
      {head + "3\r\nabc\r\nxyz\r\n", ErrorCode::protocol_error, "invalid size of a chunk", "abc"},
      {head + "3\r\nabcd\r\n", ErrorCode::protocol_error, "a chunk does not end with CRLF", "abc"},
      {head + "3\r\nabc\r\n0\r\n" + trailers, ErrorCode::limit_exceeded, "the trailer is too long", "abc"},
      {head + extensions, ErrorCode::protocol_error, "the extensions of the chunks are too long", std::string(50, 'x')},
      {head + "3\r\nabc\r\n5\r\nde", ErrorCode::unavailable, "ended the connection", "abcde", true},
      {head + "3\r\nabc\r\n", ErrorCode::unavailable, "ended the connection", "abc", true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", ErrorCode::unavailable, "ended the connection", "abc", true},
      {"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nabc", ErrorCode::limit_exceeded, "the body is too long"},
      {head + "fffffff\r\nabc", ErrorCode::limit_exceeded, "the body is too long"},
      {head + "fffffffffffffff\r\nabc", ErrorCode::limit_exceeded, "the body is too long"},
      {"HTTP/1.1 200 OK\r\n\r\n" + std::string(2000, 'a'), ErrorCode::limit_exceeded, "the body is too long"},
  };
  if (protocol::http::can_gzip()) {
    const std::string packed = *protocol::http::gzip(as_bytes(std::string(900, 'x')));
    const std::string coding = "Content-Encoding: gzip\r\n";
    cases.push_back({ok(packed.substr(0, packed.size() - 3), coding), ErrorCode::protocol_error, "is not complete",
                     std::string(900, 'x'), false, true});
    cases.push_back({ok(packed + "evil", coding), ErrorCode::protocol_error, "is not a valid gzip",
                     std::string(900, 'x'), false, true});
    cases.push_back({ok("plain text", coding), ErrorCode::protocol_error, "is not a valid gzip", "", false, true});
    const std::string longer = *protocol::http::gzip(as_bytes(std::string(5000, 'x')));
    cases.push_back({ok(longer, coding), ErrorCode::limit_exceeded, "stream_bytes_max", "", false, true});
  }
  for (const Case& one : cases) {
    HandServer server(answers_with(one.answer, one.closes));
    HttpClientOptions options;
    options.stream_bytes_max = 1000;
    with_client(
        [&](HttpClient& client) -> Task<void> {
          HttpClientRequest request = get_of(server.url());
          request.gzip = one.gzip;
          auto stream = co_await client.open(request);
          REQUIRE_OK(stream);
          std::string arrived;
          auto got = co_await read_all(*stream, &arrived);
          EXPECT_TRUE(is_error(got, one.code, one.text)) << one.answer.substr(0, 100);
          EXPECT_TRUE(one.arrives.empty() || arrived.starts_with(one.arrives)) << one.answer.substr(0, 100) << arrived;
          auto again = co_await stream->read();
          EXPECT_TRUE(is_error(again, one.code, one.text)) << one.answer.substr(0, 100);
          EXPECT_EQ(client.idle_connections(), 0U);
        },
        options);
  }
}

TEST(HttpClientStreamAlone, HeadsThatCannotBeUsed) {
  std::string endless = "HTTP/1.1 200 OK\r\n";
  while (endless.size() < 100'000) endless += "Name-" + std::to_string(endless.size()) + ": value\r\n";
  const std::vector<std::pair<std::string, ErrorCode>> cases = {
      {endless, ErrorCode::limit_exceeded},
      {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", ErrorCode::protocol_error},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", ErrorCode::protocol_error},
      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", ErrorCode::protocol_error},
      {"", ErrorCode::unavailable},
      {"HTTP/1.1 200 O", ErrorCode::unavailable},
  };
  for (const auto& [answer, code] : cases) {
    HandServer server(answers_with(answer, code == ErrorCode::unavailable));
    with_client([&](HttpClient& client) -> Task<void> {
      auto stream = co_await client.open(get_of(server.url()));
      EXPECT_TRUE(is_error(stream, code, "")) << answer.substr(0, 60);
      EXPECT_EQ(client.idle_connections(), 0U);
    });
  }
}

// RFC 9110, 8.6 and RFC 9112, 2.2 and 6.3 allow a client to read these. Their connections are not used again.
TEST(HttpClientStreamAlone, FaultsThatAreTolerated) {
  for (const std::string answer :
       {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 3\nX-One: 1\n\nabc", "HTTP/1.1 200 OK\r\nContent-Length: 3\n\r\nabc",
        "HTTP/1.1 999 Request denied\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"}) {
    HandServer server(answers_with(answer));
    with_client([&](HttpClient& client) -> Task<void> {
      auto stream = co_await client.open(get_of(server.url()));
      REQUIRE_OK(stream);
      EXPECT_EQ(stream->status(), answer.contains("999") ? 999 : 200);
      auto body = co_await stream->read();
      REQUIRE_OK(body);
      EXPECT_EQ(*body, "abc") << answer;
      auto end = co_await stream->read();
      REQUIRE_OK(end);
      EXPECT_EQ(*end, "");
      EXPECT_EQ(client.idle_connections(), 0U) << answer;
    });
  }
}

// Bytes behind the end of a response must not become the answer of the next request.
TEST(HttpClientStreamAlone, BytesBehindTheEnd) {
  HandServer server([](RawSocket& socket, int number) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes(number == 0 ? ok("1") + ok("evil") : ok("2")));
    socket.closed_by_peer();
  });
  with_client([&](HttpClient& client) -> Task<void> {
    for (const std::string_view body : {"1", "2"}) {
      auto stream = co_await client.open(get_of(server.url()));
      REQUIRE_OK(stream);
      auto got = co_await read_all(*stream);
      EXPECT_EQ(got, body);
    }
  });
}

TEST(HttpClientStreamAlone, AReaderThatDoesNotReadStopsTheServer) {
  constexpr std::size_t total = std::size_t{64} << 20;
  std::atomic<std::size_t> sent{0};
  std::atomic<bool> stuck{false};
  HandServer server([&](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(total) + "\r\n\r\n"));
    const std::string part(100'000, 'x');
    int full = 0;
    while (sent < total) {
      const std::size_t size = socket.send_some(as_bytes(part.substr(0, std::min(part.size(), total - sent))));
      sent += size;
      full = size == 0 ? full + 1 : 0;
      if (full == 50) stuck = true;
      if (size == 0) std::this_thread::sleep_for(2ms);
      if (full == 10'000) return;
    }
    socket.closed_by_peer();
  });
  with_client([&](HttpClient& client) -> Task<void> {
    auto stream = co_await client.open(get_of(server.url()));
    REQUIRE_OK(stream);
    auto full = co_await eventually(*Loop::current(), [&] { return stuck.load(); });
    EXPECT_TRUE(full);
    // The rest is what the system keeps.
    EXPECT_LT(sent.load(), total / 2);
    std::size_t bytes = 0;
    for (;;) {
      auto part = co_await stream->read();
      REQUIRE_OK(part);
      if (part->empty()) break;
      EXPECT_LE(part->size(), 256U * 1024U + 64U * 1024U);
      bytes += part->size();
    }
    EXPECT_EQ(bytes, total);
  });
}

TEST(HttpClientStreamAlone, StallsAndResets) {
  HandServer server(answers_with("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"));
  HttpClientOptions options;
  options.stall_timeout = 20ms;
  with_client(
      [&](HttpClient& client) -> Task<void> {
        auto stream = co_await client.open(get_of(server.url()));
        REQUIRE_OK(stream);
        std::string arrived;
        auto stalled = co_await read_all(*stream, &arrived);
        EXPECT_ERROR(stalled, deadline_exceeded, "HttpClientOptions::stall_timeout");
        EXPECT_EQ(arrived, "abc");
      },
      options);
  HandServer resets([](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"));
    std::this_thread::sleep_for(5ms);
    socket.reset();
  });
  with_client([&](HttpClient& client) -> Task<void> {
    auto stream = co_await client.open(get_of(resets.url()));
    REQUIRE_OK(stream);
    auto reset = co_await read_all(*stream);
    EXPECT_ERROR(reset, unavailable, "ended the connection");
    HttpClientRequest post = post_to(resets.url());
    auto posted = co_await client.open(post);
    REQUIRE_OK(posted);
    auto unknown = co_await read_all(*posted);
    EXPECT_ERROR(unknown, outcome_unknown, "ended the connection");
  });
}

TEST(HttpClientStreamAlone, StaleConnectionsAreReplaced) {
  HandServer server([](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes(ok("once")));
    socket.receive_text("\r\n\r\n");  // The next request is not answered.
  });
  with_client([&](HttpClient& client) -> Task<void> {
    for (int i = 0; i < 3; ++i) {
      auto stream = co_await client.open(get_of(server.url()));
      REQUIRE_OK(stream);
      auto got = co_await read_all(*stream);
      EXPECT_EQ(got, "once");
    }
    auto posted = co_await client.open(post_to(server.url()));
    EXPECT_ERROR(posted, outcome_unknown, "ended the connection");
  });
  EXPECT_EQ(server.connections(), 3);
}

TEST(HttpClientStreamAlone, AnswersBeforeTheEndOfAnUpload) {
  // The server answers after the head and closes, or stays, or resets; or never reads.
  for (const int way : {0, 1, 2}) {
    HandServer server([way](RawSocket& socket, int) {
      socket.receive_text("\r\n\r\n");
      socket.send(as_bytes("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno"));
      if (way == 1) socket.closed_by_peer();
      if (way == 2) {
        std::this_thread::sleep_for(5ms);
        socket.reset();
      }
    });
    with_client([&](HttpClient& client) -> Task<void> {
      auto stream = co_await client.upload(post_to(server.url()));
      REQUIRE_OK(stream);
      const std::string part = text_of(1'000'000);
      Result<void> written;
      for (int i = 0; written && i < 1000; ++i) {
        auto writing = co_await stream->write(part);
        written = writing;
      }
      EXPECT_FALSE(written);
      if (way == 1) {
        EXPECT_ERROR(written, not_sent, "has answered without the rest of the body");
        auto status = co_await stream->wait_status();
        EXPECT_EQ(status, 403);
        auto body = co_await read_all(*stream);
        EXPECT_EQ(body, "no");
      } else {
        // The system may drop the answer when the connection breaks.
        auto status = co_await stream->wait_status();
        if (status) {
          EXPECT_EQ(status, 403);
        } else {
          EXPECT_ERROR(status, outcome_unknown, "ended the connection");
        }
      }
      EXPECT_EQ(client.idle_connections(), 0U);
    });
  }
}

// The response lies in the system when the connection breaks, because the client keeps few bytes that nobody reads.
TEST(HttpClientStreamAlone, ABreakDuringAnUploadLeavesTheResponseThatHasArrived) {
  for (const bool whole : {true, false}) {
    HandServer server([whole](RawSocket& socket, int) {
      socket.receive_text("\r\n\r\n");
      const std::string head = "HTTP/1.1 403 No\r\nContent-Length: " + std::to_string(whole ? 50'000 : 60'000);
      socket.send(as_bytes(head + "\r\n\r\n" + text_of(50'000)));
      std::this_thread::sleep_for(50ms);
      socket.reset();
    });
    HttpClientOptions options;
    options.body_buffer_bytes = 1000;
    options.header_bytes_max = options.line_bytes_max = 1000;  // One receive takes no more than about 16 KiB.
    with_client(
        [&](HttpClient& client) -> Task<void> {
          auto stream = co_await client.upload(post_to(server.url()));
          REQUIRE_OK(stream);
          {
            const std::string part(64 << 20, 'x');
            auto written = co_await stream->write(part);
            EXPECT_ERROR(written, outcome_unknown, "ended the connection");
          }
          auto again = co_await stream->write(std::string("x"));
          EXPECT_FALSE(again);
          auto status = co_await stream->wait_status();
          EXPECT_EQ(status, 403);
          std::string arrived;
          auto body = co_await read_all(*stream, &arrived);
          EXPECT_EQ(arrived.size(), 50'000U);
          EXPECT_TRUE(arrived == text_of(50'000));
          EXPECT_EQ(body.has_value(), whole);
          EXPECT_EQ(client.idle_connections(), 0U);
        },
        options);
  }
}

TEST(HttpClientStreamAlone, AServerThatDoesNotReadStallsTheUpload) {
  std::atomic<bool> over{false};
  HandServer server([&](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    while (!over) std::this_thread::sleep_for(1ms);
  });
  HttpClientOptions options;
  options.stall_timeout = 30ms;
  with_client(
      [&](HttpClient& client) -> Task<void> {
        auto stream = co_await client.upload(post_to(server.url()));
        REQUIRE_OK(stream);
        const std::string part(64 << 20, 'x');
        auto written = co_await stream->write(part);
        EXPECT_ERROR(written, deadline_exceeded, "HttpClientOptions::stall_timeout");
        over = true;
      },
      options);
}

TEST(HttpClientStreamAlone, ExpectationsThatAreNotAnswered) {
  std::atomic<bool> body_came{false};
  HandServer server([&](RawSocket& socket, int number) {
    EXPECT_NE(socket.receive_text("\r\n\r\n").find("Expect: 100-continue\r\n"), std::string::npos);
    if (number == 0) {  // It knows nothing of expectations.
      EXPECT_EQ(socket.receive_text("abc"), "abc");
      socket.send(as_bytes(ok("done")));
    } else {
      socket.send(as_bytes("HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"));
      body_came = !socket.receive_text("abc").empty();
    }
  });
  with_client([&](HttpClient& client) -> Task<void> {
    HttpUpload upload{.length = 3, .expect_continue = true};
    upload.continue_timeout = 5ms;
    auto stream = co_await client.upload(post_to(server.url()), upload);
    REQUIRE_OK(stream);
    auto written = co_await stream->write(std::string("abc"));
    EXPECT_OK(written);
    auto body = co_await read_all(*stream);
    EXPECT_EQ(body, "done");
    upload.continue_timeout = forever;
    auto second = co_await client.upload(post_to(server.url()), upload);
    REQUIRE_OK(second);
    auto refused = co_await second->write(std::string("abc"));
    EXPECT_ERROR(refused, not_sent, "read the response");
    auto status = co_await second->wait_status();
    EXPECT_EQ(status, 417);
  });
  EXPECT_FALSE(body_came);
}

// ---- Lifetime ----

TEST(HttpClientStreamLife, CancelledAtAnyTime) {
  HandServer server([](RawSocket& socket, int number) {
    if (number % 3 == 1) socket.receive_text("\r\n\r\n");
    if (number % 3 == 2) socket.send(as_bytes("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"));
    socket.closed_by_peer();
  });
  with_client([&](HttpClient& client) -> Task<void> {
    for (int i = 0; i < 30; ++i) {
      std::stop_source stop;
      HttpClientRequest request = i % 2 == 0 ? get_of(server.url()) : post_to(server.url());
      request.token = stop.get_token();
      if (i == 0) stop.request_stop();
      Scope scope;
      scope.spawn([](HttpClient& used, HttpClientRequest given, bool uploads) -> Task<void> {
        if (uploads) {
          auto stream = co_await used.upload(given);
          if (!stream) co_return;
          const std::string part(20 << 20, 'x');
          auto written = co_await stream->write(part);
          EXPECT_ERROR(written, cancelled, "was cancelled");
        } else {
          auto stream = co_await used.open(given);
          if (!stream) {
            EXPECT_ERROR(stream, cancelled, "was cancelled");
            co_return;
          }
          auto body = co_await read_all(*stream);
          EXPECT_ERROR(body, cancelled, "was cancelled");
        }
      }(client, request, i % 2 != 0));
      if (i != 0) {
        co_await Loop::current()->sleep(std::chrono::microseconds(i * 150));
        stop.request_stop();
      }
      co_await scope.join();
    }
  });
}

// Operations end when the stream, or the client, is destroyed, or are destroyed themselves.
TEST(HttpClientStreamLife, DestroyedAtAnyTime) {
  HandServer server([](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc"));
    socket.closed_by_peer();
  });
  with_client([&](HttpClient& client) -> Task<void> {
    for (int way = 0; way < 40; ++way) {
      const bool uploads = way % 2 != 0;
      const int end = way / 2 % 5;
      std::optional<HttpClientStream> stream;
      auto other = std::make_unique<HttpClient>(*Loop::current());
      HttpClient& used = end == 3 ? *other : client;
      if (uploads) {
        auto begun = co_await used.upload(post_to(server.url()));
        REQUIRE_OK(begun);
        stream.emplace(std::move(*begun));
      } else {
        auto begun = co_await used.open(get_of(server.url()));
        REQUIRE_OK(begun);
        stream.emplace(std::move(*begun));
      }
      int ended = 0;
      std::string part(16 << 20, 'x');
      Scope scope;
      scope.spawn([](HttpClientStream& of, int& count) -> Task<void> {
        auto got = co_await read_all(of);
        EXPECT_ERROR(got, cancelled, "");
        ++count;
      }(*stream, ended));
      if (uploads) {
        scope.spawn([](HttpClientStream& of, std::string& text, int& count) -> Task<void> {
          Result<void> written;
          while (written) {
            auto writing = co_await of.write(text);
            written = writing;
          }
          EXPECT_ERROR(written, cancelled, "");
          ++count;
        }(*stream, part, ended));
      }
      co_await Loop::current()->sleep(std::chrono::microseconds(way * 100));
      switch (end) {
        case 0: stream.reset(); break;  // Operations that wait fail.
        case 1: scope.clear(); break;   // They are destroyed first.
        case 2: break;                  // All are destroyed together.
        case 3:
          other.reset();
          stream.reset();
          break;
        default: {
          HttpClientStream moved = std::move(*stream);
          break;
        }
      }
      if (end == 1) {
        // An operation that was destroyed while its bytes were being sent has ended the request.
        part.clear();
        if (uploads) {
          auto written = co_await stream->write(std::string("x"));
          EXPECT_ERROR(written, cancelled, "");
        }
        stream.reset();
      } else if (end != 2) {
        co_await scope.join();
        EXPECT_EQ(ended, uploads ? 2 : 1);
      }
    }
    EXPECT_EQ(client.idle_connections(), 0U);
  });
}

TEST(HttpClientStreamLife, OpeningIsDestroyed) {
  HandServer server([](RawSocket& socket, int) { socket.closed_by_peer(); });
  with_client([&](HttpClient& client) -> Task<void> {
    for (int i = 0; i < 20; ++i) {
      Scope scope;
      for (int k = 0; k < 10; ++k) {  // Some wait for a place.
        scope.spawn([](HttpClient& used, std::string url) -> Task<void> {
          auto stream = co_await used.open(get_of(std::move(url)));
          ADD_FAILURE() << "nobody answers";
        }(client, server.url()));
      }
      co_await Loop::current()->sleep(std::chrono::microseconds(i * 100));
    }
  });
}

TEST(HttpClientStreamLife, OutlivesTheClient) {
  HandServer server(answers_with(ok(text_of(1'000'000))));
  Loop loop({.log = no_log()});
  loop.run([](Loop& on, std::string url) -> Task<void> {
    auto client = std::make_unique<HttpClient>(on);
    auto stream = co_await client->open(get_of(std::move(url)));
    REQUIRE_OK(stream);
    client.reset();
    auto body = co_await read_all(*stream);
    REQUIRE_OK(body);
    EXPECT_EQ(body->size(), 1'000'000U);
  }(loop, server.url()));
}

TEST(HttpClientStreamLife, AResponseThatHasArrivedKeepsItsConnection) {
  HandServer server([](RawSocket& socket, int) {
    while (!socket.receive_text("\r\n\r\n").empty()) socket.send(as_bytes(ok(text_of(20'000))));
  });
  with_client([&](HttpClient& client) -> Task<void> {
    for (int i = 0; i < 5; ++i) {
      {
        auto stream = co_await client.open(get_of(server.url()));
        REQUIRE_OK(stream);
        co_await Loop::current()->sleep(20ms);
      }
      auto all = co_await client.get(server.url());
      EXPECT_OK(all);
    }
    EXPECT_EQ(client.idle_connections(), 1U);
  });
}

}  // namespace hawser::http_client_test
