#include "protocol/http/stream_request.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "hawser/loop.h"

// Heads of requests on streams of HTTP/2, without a connection.
namespace hawser::protocol::http {
namespace {

class StreamRequestTest : public testing::Test {
 protected:
  using Fields = std::vector<rpc::HttpField>;

  // The head of a request that is right, with these fields besides.
  static rpc::HttpStreamHead head_with(const Fields& fields) {
    return {.method = "GET", .target = "/a/b?c=d", .authority = "host:80", .fields = fields};
  }
  StreamRequest::Refusal refusal_of(const rpc::HttpStreamHead& head, std::size_t fields_max = 100) {
    fields_.clear();
    return StreamRequest(head).read(fields_max, fields_, loop_);
  }
  unsigned status_with(const Fields& fields) { return refusal_of(head_with(fields)).status; }

  // The fields of the copy of a head with these fields, as "name: value" with a newline behind each.
  std::string kept_with(const Fields& fields, bool gunzip = false) {
    const rpc::HttpStreamHead head = head_with(fields);
    StreamRequest request(head);
    EXPECT_EQ(request.read(100, fields_, loop_).status, 0U);
    const KeptHead kept = request.keep(gunzip);
    std::string text;
    for (const auto& field : kept->fields) text += std::string(field.name) + ": " + std::string(field.value) + "\n";
    return text;
  }

  const Loop loop_{{.log = no_log()}};
  CallFields fields_;
};

TEST_F(StreamRequestTest, ATargetIsAPathWithAQuery) {
  const rpc::HttpStreamHead head = head_with({});
  StreamRequest request(head);
  EXPECT_EQ(request.read(100, fields_, loop_).status, 0U);
  const KeptHead kept = request.keep(false);
  for (const RequestHead& one : {request.brief(), *kept}) {
    EXPECT_EQ(one.method, "GET");
    EXPECT_EQ(one.target, "/a/b?c=d");
    EXPECT_EQ(one.path, "/a/b");
    EXPECT_EQ(one.query, "c=d");
  }
  EXPECT_NE(kept->target.data(), head.target.data()) << "it has memory of its own";
}

TEST_F(StreamRequestTest, TheFirstLineIsChecked) {
  for (const std::string_view method : {"", "GE T", "G\x01"}) {
    rpc::HttpStreamHead head = head_with({});
    head.method = method;
    EXPECT_EQ(refusal_of(head).status, 400U) << method;
  }
  for (const std::string_view target : {"", "a", "*", "/a#b", "/a b", "/\x7f", "/\xff"}) {
    rpc::HttpStreamHead head = head_with({});
    head.target = target;
    EXPECT_EQ(refusal_of(head).status, 400U) << target;
  }
}

TEST_F(StreamRequestTest, TheHeaderHasALimit) {
  const Fields fields = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(refusal_of(head_with(fields), 2).status, 0U);
  const StreamRequest::Refusal refusal = refusal_of(head_with(fields), 1);
  EXPECT_EQ(refusal.status, 431U);
  EXPECT_EQ(refusal.text, "a header of 2 fields exceeds header_fields_max (1): send fewer");
  rpc::HttpStreamHead head = head_with({});
  head.too_large = true;
  EXPECT_EQ(refusal_of(head).status, 431U);
}

// A proxy that reads the other one would send the request elsewhere.
TEST_F(StreamRequestTest, OneHostIsNamed) {
  EXPECT_EQ(status_with({{"host", "host:80"}}), 0U);
  EXPECT_EQ(status_with({{"host", "HOST:80"}}), 0U);
  EXPECT_EQ(status_with({{"host", "other"}}), 400U);
  EXPECT_EQ(status_with({{"host", "host:80"}, {"host", "host:80"}}), 400U);
  rpc::HttpStreamHead head = head_with({});
  head.authority = "";
  EXPECT_EQ(refusal_of(head).status, 400U) << "neither";
  const Fields fields = {{"host", "only"}};
  head.fields = fields;
  EXPECT_EQ(refusal_of(head).status, 0U);
  const Fields wrong = {{"host", "a/b"}};
  head.fields = wrong;
  EXPECT_EQ(refusal_of(head).status, 400U);
  head = head_with({});
  head.authority = "a/b";
  EXPECT_EQ(refusal_of(head).status, 400U);
}

TEST_F(StreamRequestTest, TheLengthIsOneNumber) {
  for (const std::string_view length : {"", "-1", "+1", "1x", "x", " 1", "18446744073709551616"}) {
    EXPECT_EQ(status_with({{"content-length", length}}), 400U) << length;
  }
  EXPECT_EQ(status_with({{"content-length", "5"}, {"content-length", "6"}}), 400U);
  const Fields fields = {{"content-length", "5"}, {"content-length", "5"}};
  const rpc::HttpStreamHead head = head_with(fields);
  StreamRequest request(head);
  EXPECT_EQ(request.read(100, fields_, loop_).status, 0U);
  EXPECT_EQ(request.content_length(), 5U);
  const KeptHead kept = request.keep(false);
  EXPECT_TRUE(kept->has_content_length);
  EXPECT_EQ(kept->content_length, 5U);
}

TEST_F(StreamRequestTest, TheOnlyExpectationIsThatTheRequestContinues) {
  EXPECT_EQ(status_with({{"expect", "200-ok"}}), 417U);
  for (const bool expects : {false, true}) {
    const Fields fields = expects ? Fields{{"expect", "100-Continue"}} : Fields{};
    const rpc::HttpStreamHead head = head_with(fields);
    StreamRequest request(head);
    EXPECT_EQ(request.read(100, fields_, loop_).status, 0U);
    EXPECT_EQ(request.expects(), expects);
  }
}

TEST_F(StreamRequestTest, ThePlanDependsOnTheFormOfTheBody) {
  const Fields fields = {{"x", "1"}, {"content-type", "text/plain"}, {"content-encoding", "gzip"}, {"y", "2"}};
  const rpc::HttpStreamHead head = head_with(fields);
  const RequestHead brief = StreamRequest(head).brief();
  ASSERT_EQ(brief.fields.size(), 2U);
  EXPECT_EQ(brief.fields[0].value, "text/plain");
  EXPECT_EQ(brief.fields[1].value, "gzip");
}

TEST_F(StreamRequestTest, TheCopyHasTheHostFirstAndOneCookie) {
  EXPECT_EQ(kept_with({{"x", "1"}}), "host: host:80\nx: 1\n");
  EXPECT_EQ(kept_with({{"x", "1"}, {"host", "host:80"}}), "x: 1\nhost: host:80\n");
  EXPECT_EQ(kept_with({{"cookie", "a=1"}, {"x", "1"}, {"cookie", "b=2"}}), "host: host:80\ncookie: a=1; b=2\nx: 1\n");
  EXPECT_EQ(kept_with({{"cookie", ""}}), "host: host:80\ncookie: \n");
}

TEST_F(StreamRequestTest, ACopyForADecompressedBodyDoesNotDescribeTheOtherOne) {
  const Fields fields = {{"content-encoding", "gzip"}, {"content-length", "5"}, {"content-type", "text/plain"}};
  EXPECT_EQ(kept_with(fields, true), "host: host:80\ncontent-type: text/plain\n");
  EXPECT_EQ(kept_with(fields), "host: host:80\ncontent-encoding: gzip\ncontent-length: 5\ncontent-type: text/plain\n");
}

TEST_F(StreamRequestTest, EachFieldIsReadForTheCall) {
  EXPECT_EQ(status_with({{"x-user", "a"}, {"timeout-ms", "50"}}), 0U);
  EXPECT_EQ(MetadataView(Bytes(fields_.metadata)).find("x-user"), "a");
  EXPECT_TRUE(fields_.deadline);
}

}  // namespace
}  // namespace hawser::protocol::http
