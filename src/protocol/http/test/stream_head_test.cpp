#include "protocol/http/stream_head.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace hawser::protocol::http {
namespace {

using HeadFields = std::vector<std::pair<std::string, std::string>>;

HeadFields fields_of_head(StreamHead& head) {
  HeadFields found;
  for (const rpc::HttpField& field : head.fields()) found.emplace_back(field.name, field.value);
  return found;
}

constexpr std::int64_t head_seconds = 784'111'777;
const std::pair<std::string, std::string> head_date = {"date", "Sun, 06 Nov 1994 08:49:37 GMT"};

TEST(StreamHead, HasItsFieldsInOrderWithNamesInLowerCase) {
  StreamHead head;
  head.begin(head_seconds);
  head.add("X-One", "Value");
  head.add_type("text/plain");
  head.add_length(42);
  EXPECT_EQ(fields_of_head(head),
            HeadFields({head_date, {"x-one", "Value"}, {"content-type", "text/plain"}, {"content-length", "42"}}));
}

TEST(StreamHead, EachHeadBeginsAnew) {
  StreamHead head;
  head.begin(head_seconds);
  head.add("a", "1");
  EXPECT_EQ(fields_of_head(head).size(), 2U);
  head.begin(head_seconds + 1);
  EXPECT_EQ(fields_of_head(head), HeadFields({{"date", "Sun, 06 Nov 1994 08:49:38 GMT"}}));
}

TEST(StreamHead, LeavesOutWhatHttp2ForbidsAndSpaceAroundValues) {
  StreamHead head;
  head.begin(head_seconds);
  for (const char* const name : {"Content-Length", "Date", "Connection", "Keep-Alive", "Proxy-Connection",
                                 "Transfer-Encoding", "Upgrade", "TE", "", ":status", "no token"}) {
    head.add(name, "1");
  }
  head.add("x", "a\nb");
  head.add_type("");
  head.add("Spaced", " \tin the middle\t ");
  head.add("blank", " \t ");
  EXPECT_EQ(fields_of_head(head), HeadFields({head_date, {"spaced", "in the middle"}, {"blank", ""}}));
}

}  // namespace
}  // namespace hawser::protocol::http
