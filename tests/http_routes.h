#pragma once

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>

#include "hawser/detail/json_transcoder.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "tests/raw_peer.h"

// Methods and routes for tests of HTTP/1.1. They are not anonymous: GCC warns of anonymous functions that could be
// offloaded.
namespace hawser::http_test {

using namespace testing_tools;

inline std::string say(std::string_view text) { return std::string(text); }

// One text between quotes, without escapes, is the argument and the result.
class TextTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    if (json.size() < 2 || json.front() != '"' || json.back() != '"') {
      return fail(ErrorCode::invalid_argument, "the JSON is not a text");
    }
    return Buffer::copy_of(text_body(json.substr(1, json.size() - 2)));
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    const std::string_view text = payload.empty() ? as_text(body).substr(4) : as_text(payload);
    if (text == "no json") return fail(ErrorCode::internal, "this result has no JSON");
    return "\"" + std::string(text) + "\"";
  }
  std::string_view encoding() const noexcept override { return "hawser"; }
};

// For methods whose bodies are bytes.
class BytesTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override { return Buffer::copy_of(json); }
  Result<std::string> result_to_json(Bytes body, Bytes) const override { return std::string(as_text(body)); }
  std::string_view encoding() const noexcept override { return "proto"; }
};

inline std::atomic<int> waiting{0};
inline std::atomic<int> cancelled{0};
inline std::atomic<bool> released{false};

inline Task<Result<std::string>> say_later(Context& context, std::string text) {
  co_await context.loop().sleep(1ms);
  if (text == "fail") co_return std::unexpected(Error::application(7, "it \"failed\"\n"));
  if (text == "throw") throw std::runtime_error("thrown");
  if (const auto value = context.metadata().find("x-one")) context.add_metadata("x-back-x-one", std::string(*value));
  if (context.metadata().find("cookie")) context.add_metadata("x-back-cookie", "");
  co_return text;
}
inline Task<Result<std::string>> wait_for_ever(Context& context, std::string) {
  waiting.fetch_add(1);
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  cancelled.fetch_add(1);
  if (!slept) co_return std::unexpected(slept.error());
  co_return "late";
}

inline Task<HttpResponse> hello(HttpRequest& request) {
  co_await request.loop().sleep(1ms);
  HttpResponse response;
  response.body = std::string(request.method()) + " " + std::string(request.path()) + "?" +
                  std::string(request.query()) + " " + std::string(request.header("X-Name").value_or("nobody")) + " " +
                  std::string(request.text());
  response.headers.emplace_back("X-Good", "yes");
  response.headers.emplace_back("X-Bad", "a\r\nInjected: b");
  response.headers.emplace_back("Content-Length", "1");
  co_return response;
}
// Answers with the parameters of the path.
inline Task<HttpResponse> parameters(HttpRequest& request) {
  HttpResponse response;
  for (const std::string_view name : {"id", "order", "kind"}) {
    if (const auto value = request.parameter(name)) {
      response.body += std::string(name) + "=" + std::string(*value) + ";";
    }
  }
  co_return response;
}
inline Task<HttpResponse> wait_in_route(HttpRequest& request) {
  waiting.fetch_add(1);
  static_cast<void>(co_await request.loop().sleep(1h, request.token()));
  cancelled.fetch_add(1);
  HttpResponse response;
  response.status = 504;
  co_return response;
}
inline Task<HttpResponse> wait_for_release(HttpRequest& request) {
  waiting.fetch_add(1);
  while (!released.load()) {
    co_await request.loop().sleep(1ms);
  }
  HttpResponse response;
  response.body = "released";
  co_return response;
}
inline Task<HttpResponse> broken(HttpRequest&) {
  throw std::runtime_error("no luck");
  co_return HttpResponse{};
}
inline Task<HttpResponse> large(HttpRequest&) {
  HttpResponse response;
  response.body.assign(1 << 20, 'x');
  co_return response;
}
inline Task<void> send_parts(HttpBodyWriter& writer) {
  for (int i = 0; i < 1000; ++i) {
    std::string part(1000, static_cast<char>('a' + i % 26));
    auto writing = writer.write(std::move(part));
    part.assign(1000, '?');  // The task has kept it.
    const Result<void> written = co_await std::move(writing);
    if (!written) break;
  }
}
inline Task<HttpResponse> streamed(HttpRequest&) {
  HttpResponse response;
  response.stream = send_parts;
  co_return response;
}
inline Task<void> send_for_ever(HttpBodyWriter& writer) {
  const std::string part(10'000, 'x');
  for (;;) {
    const Result<void> written = co_await writer.write(part);
    if (!written) break;
  }
  cancelled.fetch_add(1);
}
inline Task<HttpResponse> endless(HttpRequest&) {
  HttpResponse response;
  response.stream = send_for_ever;
  co_return response;
}
inline Task<void> send_and_throw(HttpBodyWriter& writer) {
  static_cast<void>(co_await writer.write("part"));
  throw std::runtime_error("no more");
}
inline Task<HttpResponse> cut_short(HttpRequest&) {
  HttpResponse response;
  response.stream = send_and_throw;
  co_return response;
}
inline Task<HttpResponse> empty(HttpRequest&) {
  HttpResponse response;
  response.status = 204;
  co_return response;
}

}  // namespace hawser::http_test
