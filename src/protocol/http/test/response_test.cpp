#include "protocol/http/response.h"

#include <gtest/gtest.h>

#include <string>

namespace hawser::protocol::http {
namespace {

constexpr std::int64_t response_seconds = 784'111'777;
const std::string response_date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

TEST(ResponseWriter, WritesTheHeadOfAResponse) {
  ResponseWriter writer;
  writer.begin(200, 1, response_seconds);
  writer.add("X-One", "1");
  writer.add_type("text/plain");
  writer.end(42, true);
  EXPECT_EQ(writer.text(), "HTTP/1.1 200 OK\r\n" + response_date +
                               "X-One: 1\r\nContent-Type: text/plain\r\nContent-Length: 42\r\n\r\n");
}

TEST(ResponseWriter, EachHeadBeginsAnew) {
  ResponseWriter writer;
  writer.begin(200, 1, response_seconds);
  writer.end(1, true);
  writer.begin(404, 1, response_seconds + 1);
  writer.end_chunked(true);
  EXPECT_EQ(writer.text(),
            "HTTP/1.1 404 Not Found\r\nDate: Sun, 06 Nov 1994 08:49:38 GMT\r\nTransfer-Encoding: chunked\r\n\r\n");
}

TEST(ResponseWriter, SaysWhatBecomesOfTheConnectionIfItIsNotTheRuleOfTheVersion) {
  ResponseWriter writer;
  const auto bare = [&](unsigned minor, bool keep_alive) {
    writer.begin(204, minor, response_seconds);
    writer.end_bare(keep_alive);
    return std::string(writer.text().substr(writer.text().find(response_date) + response_date.size()));
  };
  EXPECT_EQ(bare(1, true), "\r\n");
  EXPECT_EQ(bare(1, false), "Connection: close\r\n\r\n");
  EXPECT_EQ(bare(0, true), "Connection: keep-alive\r\n\r\n");
  EXPECT_EQ(bare(0, false), "Connection: close\r\n\r\n");
}

TEST(ResponseWriter, LeavesOutFieldsThatAHandlerMustNotSet) {
  ResponseWriter writer;
  writer.begin(200, 1, response_seconds);
  for (const char* const name : {"content-length", "Transfer-Encoding", "CONNECTION", "Date", "", "no token"}) {
    writer.add(name, "1");
  }
  writer.add("X-Injected", "a\r\nSet-Cookie: b");
  writer.add_type("text/plain\r\nX: y");
  writer.add_type("");
  writer.end(0, true);
  EXPECT_EQ(writer.text(), "HTTP/1.1 200 OK\r\n" + response_date + "Content-Length: 0\r\n\r\n");
}

TEST(Response, AChunkBeginsWithItsLengthInHexadecimal) {
  EXPECT_EQ(chunk_head(1), "1\r\n");
  EXPECT_EQ(chunk_head(255), "ff\r\n");
  EXPECT_EQ(chunk_head(0x1'0000'0000), "100000000\r\n");
}

TEST(Response, AnErrorIsAnObjectOfJson) {
  EXPECT_EQ(error_json(Error::of_call(ErrorCode::overloaded, "say \"later\"")),
            "{\"code\":\"overloaded\",\"message\":\"say \\\"later\\\"\"}\n");
  EXPECT_EQ(error_json(Error::application(-7, "failed")),
            "{\"code\":\"application\",\"application_code\":-7,\"message\":\"failed\"}\n");
}

TEST(Response, AClientThatWaitsHasNotCancelledItsCall) {
  const Error cancelled = Error::of_call(ErrorCode::cancelled, "stopped");
  EXPECT_EQ(error_for_client(cancelled, false).code, ErrorCode::unavailable);
  EXPECT_EQ(error_for_client(cancelled, false).text, "stopped");
  EXPECT_EQ(error_for_client(cancelled, true).code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(error_for_client(cancelled, true).text, "the deadline of the request has passed");
  const Error other = Error::of_call(ErrorCode::internal, "broken");
  EXPECT_EQ(error_for_client(other, true).code, ErrorCode::internal);
}

}  // namespace
}  // namespace hawser::protocol::http
