#include "protocol/http2/request_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace hawser::protocol::http2 {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

const Fields request = {{":method", "POST"}, {":scheme", "http"}, {":path", "/a"}, {":authority", "test"}};

// "good" or "malformed".
std::string verdict(const Fields& fields, std::size_t body_bytes = 0, const Fields& trailers = {}) {
  RequestRules rules;
  for (const auto& [name, value] : fields) EXPECT_EQ(rules.add(name, value, false), !rules.malformed()) << name;
  rules.end_head();
  rules.add_body(body_bytes);
  for (const auto& [name, value] : trailers) static_cast<void>(rules.add(name, value, true));
  rules.end();
  return rules.malformed() ? "malformed" : "good";
}

std::string with(const Fields& more, std::size_t body_bytes = 0, const Fields& trailers = {}) {
  Fields all = request;
  all.insert(all.end(), more.begin(), more.end());
  return verdict(all, body_bytes, trailers);
}

// The request without the pseudo-header field, and with another value of it.
std::string without(const std::string& name, const Fields& instead = {}) {
  Fields all = instead;
  for (const auto& field : request) {
    if (field.first != name) all.push_back(field);
  }
  return verdict(all);
}

TEST(Http2RequestRules, EachAuthorityIsGood) {
  for (const std::string authority :
       {"/run/a.sock", "%2Frun%2Fa.sock", "", "a b", "unix", "\xc3\xa4", "a,b", "[::1]:1"}) {
    EXPECT_EQ(without(":authority", {{":authority", authority}}), "good") << authority;
  }
  EXPECT_EQ(without(":authority"), "good");
  EXPECT_EQ(without(":authority", {{":authority", "a\nb"}}), "malformed");
  EXPECT_EQ(with({{":authority", "test"}}), "malformed");
}

TEST(Http2RequestRules, PseudoHeaderFieldsAreCompleteAndFirst) {
  EXPECT_EQ(with({{"x-a", "1"}}), "good");
  for (const std::string name : {":method", ":scheme", ":path"}) {
    EXPECT_EQ(without(name), "malformed") << name;
    EXPECT_EQ(without(name, {{name, ""}}), "malformed") << name;
    EXPECT_EQ(without(name, {{name, "a\rb"}}), "malformed") << name;
    EXPECT_EQ(with({{name, "http"}}), "malformed") << name;
  }
  EXPECT_EQ(without(":scheme", {{":scheme", "1http"}}), "malformed");
  EXPECT_EQ(with({{":status", "200"}}), "malformed");
  EXPECT_EQ(with({{":Path", "/a"}}), "malformed");
  EXPECT_EQ(without(":path", {{"x-a", "1"}, {":path", "/a"}}), "malformed");
  EXPECT_EQ(with({}, 0, {{":path", "/a"}}), "malformed");
  EXPECT_EQ(verdict({{":method", "CONNECT"}, {":authority", "test"}}), "good");
  EXPECT_EQ(verdict({{":method", "CONNECT"}}), "malformed");
  EXPECT_EQ(without(":method", {{":method", "CONNECT"}}), "malformed");
}

TEST(Http2RequestRules, FieldsOfHttp1AndBadCharactersAreMalformed) {
  for (const std::string name : {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}) {
    EXPECT_EQ(with({{name, "x"}}), "malformed") << name;
    EXPECT_EQ(with({}, 0, {{name, "x"}}), "malformed") << name;
  }
  EXPECT_EQ(with({{"te", "Trailers"}}), "good");
  EXPECT_EQ(with({{"te", "gzip"}}), "malformed");
  EXPECT_EQ(with({{"host", "a"}, {"host", "a"}}), "malformed");
  for (const std::string name : {"", "X-a", "x a", "x:a", "x(a", "x\x7f", "\xc3\xa4"}) {
    EXPECT_EQ(with({{name, "x"}}), "malformed") << name;
  }
  for (const std::string& value : {std::string("a\r\nb: c"), std::string("\n"), std::string("a\0b", 3),
                                   std::string("\x01, 1.2.3.4"), std::string("a\x7f")}) {
    EXPECT_EQ(with({{"x-a", value}}), "malformed");
  }
  for (const auto& [value, content] : Fields{{" 1", "1"}, {"1\t ", "1"}, {" \t", ""}, {"", ""}, {"1 2", "1 2"}}) {
    EXPECT_EQ(RequestRules::without_spaces(value), content);
  }
  EXPECT_EQ(with({{"x-a", "1\t2"}, {"x-b", ""}, {"x-c", "\xc3\xa4"}, {"x-d", "1 2"}}), "good");
}

TEST(Http2RequestRules, ContentLengthIsThatOfTheBody) {
  EXPECT_EQ(with({{"content-length", "2"}}, 2), "good");
  EXPECT_EQ(with({}, 2), "good");
  for (const std::string length : {"1", "3", "", "-2", "2a", "18446744073709551616"}) {
    EXPECT_EQ(with({{"content-length", length}}, 2), "malformed") << length;
  }
  EXPECT_EQ(with({{"content-length", "2"}, {"content-length", "2"}}, 2), "malformed");
  RequestRules rules;
  static_cast<void>(rules.add("content-length", "2", false));
  rules.add_body(2);
  EXPECT_FALSE(rules.malformed());
  rules.add_body(1);
  EXPECT_TRUE(rules.malformed());
}

}  // namespace
}  // namespace hawser::protocol::http2
