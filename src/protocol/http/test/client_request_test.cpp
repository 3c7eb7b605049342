#include "protocol/http/client_request.h"

#include <gtest/gtest.h>

#include <string>

#include "protocol/http/gzip.h"

namespace hawser::protocol::http {
namespace {

std::string head_for(const HttpClientRequest& request, const HttpUpload* upload = nullptr) {
  const Result<Url> url = parse_url(request.url);
  return url ? head_of(request, *url, upload) : url.error().text;
}

TEST(ClientRequest, ARequestStatesTheLengthOfItsBody) {
  const std::string host = " HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(head_for({.url = "http://a/p?q"}), "GET /p?q" + host + "\r\n") << "a request that has none, as usual";
  EXPECT_EQ(head_for({.url = "http://a", .body = "abc"}), "GET /" + host + "Content-Length: 3\r\n\r\n");
  EXPECT_EQ(head_for({.method = "POST", .url = "http://a"}), "POST /" + host + "Content-Length: 0\r\n\r\n");
}

TEST(ClientRequest, AnUploadStatesItsLengthOrIsChunked) {
  const HttpClientRequest request{.method = "PUT", .url = "http://a", .content_type = "text/plain"};
  const std::string begin = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n";
  HttpUpload upload;
  EXPECT_EQ(head_for(request, &upload), begin + "Transfer-Encoding: chunked\r\n\r\n");
  upload = {.length = 7, .expect_continue = true};
  EXPECT_EQ(head_for(request, &upload), begin + "Content-Length: 7\r\nExpect: 100-continue\r\n\r\n");
}

TEST(ClientRequest, FieldsThatTheClientSendsAreRefused) {
  const auto error_for = [](const HttpClientRequest& request) {
    const Result<ClientTarget> target = target_of(request, {});
    return target ? std::string() : target.error().text;
  };
  EXPECT_EQ(error_for({.url = "http://a", .headers = {{"x-one", "1"}}}), "");
  EXPECT_EQ(error_for({.url = "http://a", .headers = {{"Host", "b"}}}),
            "the client sends the header field Host itself: leave it out");
  EXPECT_EQ(error_for({.url = "http://a", .headers = {{"x", "1\r\ny: 2"}}}),
            "the header field x has a control character");
  EXPECT_EQ(error_for({.url = "http://a", .headers = {{"a b", "1"}}}), "the header field \"a b\" is not a token");
  EXPECT_EQ(error_for({.url = "http://a", .content_type = "a\n"}), "content_type has a control character");
  EXPECT_EQ(error_for({.method = "CONNECT", .url = "http://a"}),
            "the method \"CONNECT\" is not a method that a request can have");
  EXPECT_EQ(error_for({.url = "https://a"}), "https needs the option `security`: set it to a TlsClient (hawser/tls.h)");
}

TEST(ClientRequest, AnAddressReplacesTheHostOfTheUrl) {
  const Result<ClientTarget> plain = target_of({.url = "http://a:81/"}, {});
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->address, "a:81");
  const Result<ClientTarget> other = target_of({.url = "http://a:81/", .address = "unix:/b"}, {});
  ASSERT_TRUE(other.has_value());
  EXPECT_EQ(other->address, "unix:/b");
  EXPECT_EQ(other->url.authority, "a:81");
  EXPECT_NE(other->key, plain->key);
}

TEST(ClientRequest, SafeMethodsAreIdempotentAndOthersMayBe) {
  for (const char* const method : {"GET", "HEAD", "OPTIONS"}) EXPECT_TRUE(is_safe(method)) << method;
  for (const char* const method : {"GET", "PUT", "DELETE"}) EXPECT_TRUE(is_idempotent(method)) << method;
  for (const char* const method : {"PUT", "DELETE", "POST", "get"}) EXPECT_FALSE(is_safe(method)) << method;
  EXPECT_FALSE(is_idempotent("POST"));
}

TEST(ClientRequest, OneCodingThatWasAskedForIsRemoved) {
  if (!can_gzip()) GTEST_SKIP() << "without zlib";
  const HttpClientRequest request{.gzip = true};
  HttpClientResponse response{.headers = {{"Content-Encoding", "gzip"}, {"Content-Length", "9"}, {"x", "y"}}};
  EXPECT_FALSE(drop_gzip_fields({}, response)) << "it was not asked for";
  EXPECT_TRUE(drop_gzip_fields(request, response));
  EXPECT_EQ(response.headers.size(), 1U);
  EXPECT_FALSE(drop_gzip_fields(request, response));
  HttpClientResponse twice{.headers = {{"content-encoding", "gzip"}, {"content-encoding", "gzip"}}};
  EXPECT_FALSE(drop_gzip_fields(request, twice));
  EXPECT_EQ(twice.headers.size(), 2U);
}

}  // namespace
}  // namespace hawser::protocol::http
