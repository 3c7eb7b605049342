#include <google/protobuf/struct.pb.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "hawser/protobuf_service.h"
#include "json/json_cases_testing.h"
#include "protobuf/test/shop.pb.h"

namespace hawser::pb {
namespace {

using probe::OrderReply;
using probe::OrderRequest;
using probe::Tree;

std::shared_ptr<const detail::JsonTranscoder> orders() {
  return json_transcoder(OrderRequest::descriptor(), OrderReply::descriptor());
}

std::string_view text(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size()};
}

std::string refusal(const Result<Buffer>& result) {
  return result ? "accepted" : std::string(to_string(result.error().code)) + ": " + result.error().text;
}

TEST(Json, ArgumentsBecomeTheBytesOfAMessage) {
  const Result<Buffer> body = orders()->arguments_from_json(R"({"item": "r\u00f6pe", "count": 7, "data": "AAEC"})");
  ASSERT_TRUE(body) << refusal(body);
  OrderRequest request;
  ASSERT_TRUE(request.ParseFromString(std::string(text(*body))));
  EXPECT_EQ(request.item(), "r\u00f6pe");
  EXPECT_EQ(request.count(), 7);
  EXPECT_EQ(request.data(), std::string("\0\1\2", 3));
  EXPECT_EQ(orders()->encoding(), "proto");
}

TEST(Json, EmptyTextStandsForAnEmptyMessage) {
  for (const std::string_view json : {"", " \r\n\t", "{}", " { } "}) {
    const Result<Buffer> body = orders()->arguments_from_json(json);
    ASSERT_TRUE(body) << refusal(body);
    EXPECT_EQ(text(*body), "");
  }
}

TEST(Json, ResultsHaveTheNamesOfProtoJson) {
  OrderReply reply;
  reply.set_text("one \"rope\"");
  reply.set_data(std::string("\0\1\2", 3));
  const std::string body = reply.SerializeAsString();
  EXPECT_EQ(orders()->result_to_json(as_bytes(body), {}), R"({"text":"one \"rope\"","data":"AAEC"})");
  EXPECT_EQ(orders()->result_to_json({}, {}), "{}");
  probe::Total total;
  total.set_price(1'234'567'890'123);
  const std::string number = total.SerializeAsString();
  EXPECT_EQ(json_transcoder(nullptr, probe::Total::descriptor())->result_to_json(as_bytes(number), {}),
            R"({"price":"1234567890123"})");
}

TEST(Json, ErrorsNameTheMessageAndTheField) {
  for (const auto& [json, expected] :
       std::initializer_list<std::pair<const char*, const char*>>{{R"({"count": "many"})", "count"},
                                                                  {R"({"colour": "red"})", "colour"},
                                                                  {R"({"item": {"a": 1}})", "item"},
                                                                  {R"({"item": "x")", "the text ends too early"},
                                                                  {R"({"item": "x", "item": "y"})", "two members"},
                                                                  {R"({item: "x"})", "quotation marks"},
                                                                  {R"([1, 2])", ""},
                                                                  {R"("text")", ""},
                                                                  {R"({"item": "x"} trailing)", ""},
                                                                  {"{\"item\": \"\xff\xfe\"}", ""},
                                                                  {"nonsense", ""}}) {
    const std::string error = refusal(orders()->arguments_from_json(json));
    EXPECT_NE(error.find("invalid_argument: JSON of probe.OrderRequest"), std::string::npos) << json << " " << error;
    EXPECT_NE(error.find(expected), std::string::npos) << json << " " << error;
  }
}

TEST(Json, DepthIsLimited) {
  const auto trees = json_transcoder(Tree::descriptor(), Tree::descriptor());
  const auto nested = [](int depth) {
    std::string json;
    for (int i = 0; i < depth; ++i) json += R"({"branches":[)";
    json += "{}";
    for (int i = 0; i < depth; ++i) json += "]}";
    return json;
  };
  EXPECT_TRUE(trees->arguments_from_json(nested(20)));
  EXPECT_FALSE(trees->arguments_from_json(nested(101)));
  EXPECT_FALSE(trees->arguments_from_json(nested(100'000)));
  // libprotobuf would take minutes for a list of that depth. Brackets in texts do not count.
  for (const char* const begin : {"[", "{\"x\":", R"({"\"[":)"}) {
    std::string deep;
    for (int i = 0; i < 500'000; ++i) deep += begin;
    const auto refused = trees->arguments_from_json(deep);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find("nested more than 100 deep"), std::string::npos) << refused.error().text;
  }
  const auto lists = json_transcoder(google::protobuf::ListValue::descriptor(), nullptr);
  EXPECT_FALSE(lists->arguments_from_json(std::string(1'000'000, '[') + std::string(1'000'000, ']')));
  // A flat list is slow as well, so its length is limited.
  std::string flat = "[0";
  while (flat.size() < 100'000) flat += ",0";
  EXPECT_TRUE(lists->arguments_from_json(flat + "]"));
  while (flat.size() <= 4 << 20) flat += ",0";
  const auto too_long = lists->arguments_from_json(flat + "]");
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::limit_exceeded) << too_long.error().text;
  // Nothing is checked beyond that length: a check takes memory for each name.
  const auto unchecked = lists->arguments_from_json(flat);
  ASSERT_FALSE(unchecked);
  EXPECT_EQ(unchecked.error().code, ErrorCode::limit_exceeded) << unchecked.error().text;
  const std::string brackets(1000, '[');
  const auto unknown = trees->arguments_from_json("{\"" + brackets + "\\\"" + brackets + "\":\"" + brackets + "\"}");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().text.find("nested more than"), std::string::npos) << unknown.error().text;
  EXPECT_FALSE(trees->arguments_from_json(std::string(1'000'000, '[')));
  Tree tree;
  Tree* top = &tree;
  for (int i = 0; i < 120; ++i) top = top->add_branches();
  const std::string body = tree.SerializeAsString();
  const Result<std::string> json = trees->result_to_json(as_bytes(body), {});
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().code, ErrorCode::internal);
}

// Texts that libprotobuf converts, and those that are converted directly.
TEST(Json, IsReadAsStrictlyAsEverywhere) {
  const auto numbers = json_transcoder(google::protobuf::ListValue::descriptor(), nullptr);
  const auto members = json_transcoder(google::protobuf::Struct::descriptor(), nullptr);
  const auto is_invalid = [](const detail::JsonTranscoder& of, const std::string& json) {
    return refusal(of.arguments_from_json(json)).find("invalid JSON at byte ") != std::string::npos;
  };
  for (const std::string& text : json::testing::invalid_jsons()) {
    if (text.find_first_not_of(" \n") == std::string::npos) continue;  // Stands for an empty message.
    EXPECT_TRUE(is_invalid(*numbers, text)) << text;
    EXPECT_TRUE(is_invalid(*members, "{\"member\":" + text + "}")) << text;
    EXPECT_TRUE(is_invalid(*orders(), "{\"item\":" + text + "}")) << text;
  }
  for (const auto& [written, text] : json::testing::valid_texts) {
    const Result<Buffer> body = orders()->arguments_from_json("{\"item\":" + std::string(written) + "}");
    OrderRequest request;
    ASSERT_TRUE(body && request.ParseFromString(std::string(hawser::pb::text(*body)))) << written;
    EXPECT_EQ(request.item(), text) << written;
  }
}

TEST(Json, AStreamHasNoArgumentsAndNoResult) {
  const auto stream = json_transcoder(nullptr, nullptr);
  EXPECT_TRUE(stream->arguments_from_json(""));
  EXPECT_TRUE(stream->arguments_from_json("{}"));
  EXPECT_FALSE(stream->arguments_from_json(R"({"item": "x"})"));
  EXPECT_EQ(stream->result_to_json({}, {}), "{}");
}

TEST(Json, AReplyWithAPayloadIsRefused) {
  EXPECT_FALSE(orders()->result_to_json({}, as_bytes(std::string_view("payload"))));
}

}  // namespace
}  // namespace hawser::pb
