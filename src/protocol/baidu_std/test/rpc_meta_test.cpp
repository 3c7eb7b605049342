#include "protocol/baidu_std/rpc_meta.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocol/baidu_std/frame.h"
#include "protocol/baidu_std/test/vectors.h"

namespace hawser::protocol::baidu_std {
namespace {

using vectors::hex;
using vectors::to_hex;

Bytes meta_of(const std::vector<std::byte>& frame) {
  const auto header = parse_header(frame, {});
  return Bytes(frame).subspan(FrameHeader::bytes, (**header).meta_bytes);
}

std::vector<std::byte> encoded(const RpcMeta& meta, const Metadata* user_fields = nullptr) {
  std::vector<std::byte> bytes(meta_bytes(meta, user_fields));
  std::byte* const checksum = write_meta(bytes.data(), meta, user_fields);
  EXPECT_EQ(checksum + (meta.checksum_type == 0 ? 0 : checksum_bytes), bytes.data() + bytes.size());
  return bytes;
}

TEST(BaiduStdMeta, ARequest) {
  const std::vector<std::byte> frame = hex(vectors::request);
  const Result<RpcMeta> meta = parse_meta(meta_of(frame));
  ASSERT_TRUE(meta) << meta.error().text;
  ASSERT_TRUE(meta->request);
  EXPECT_EQ(meta->request->service, "example.EchoService");
  EXPECT_EQ(meta->request->method, "Echo");
  EXPECT_EQ(meta->correlation_id, 7);
  EXPECT_FALSE(meta->response || meta->stream || meta->request->timeout_ms || meta->request->log_id);
  EXPECT_EQ(meta->attachment_size, 0);
}

TEST(BaiduStdMeta, RepliesAreWrittenAsBrpcWritesThem) {
  const RpcMeta reply{.response = ResponseMeta{}, .correlation_id = 7};
  EXPECT_EQ(to_hex(encoded(reply)), to_hex(meta_of(hex(vectors::reply))));
  const RpcMeta refusal{.response = ResponseMeta{1002, "no"}, .correlation_id = 300};
  EXPECT_EQ(to_hex(encoded(refusal)), to_hex(meta_of(hex(vectors::refusal))));
  const std::vector<std::byte> bytes = hex(vectors::refusal);
  const Result<RpcMeta> parsed = parse_meta(meta_of(bytes));
  ASSERT_TRUE(parsed && parsed->response);
  EXPECT_EQ(*parsed->response, (ResponseMeta{1002, "no"}));
}

// The field numbers and types of the fact sheet, each field with a value of its own.
TEST(BaiduStdMeta, EveryField) {
  const std::vector<std::byte> bytes =
      hex("0a1b 0a0161 120162 1863 2064 2865 3066 3a0167 40e807"  // request, all fields
          "1a05"                                                  // the rest of it is a field that nobody knows
          "0102030405"
          "1802 20ffffffffffffffffff01 2803 3204 0801 1002"
          "3a0473657361 4208 082a 1001 1801 2007"
          "4a06 0a016b 120176"
          "5003 5801 6204 01020304 6801");
  const Result<RpcMeta> meta = parse_meta(bytes);
  ASSERT_TRUE(meta) << meta.error().text;
  const RequestMeta& request = *meta->request;
  EXPECT_EQ(request.service, "a");
  EXPECT_EQ(request.method, "b");
  EXPECT_EQ(request.log_id, 0x63);
  EXPECT_EQ(request.trace_id, 0x64);
  EXPECT_EQ(request.span_id, 0x65);
  EXPECT_EQ(request.parent_span_id, 0x66);
  EXPECT_EQ(request.request_id, "g");
  EXPECT_EQ(request.timeout_ms, 1000);
  EXPECT_EQ(meta->compress_type, 2);
  EXPECT_EQ(meta->correlation_id, -1);
  EXPECT_EQ(meta->attachment_size, 3);
  EXPECT_TRUE(meta->chunked);
  EXPECT_EQ(meta->authentication_data, "sesa");
  EXPECT_EQ(meta->stream, (StreamSettings{42, true, true, false, {7}}));
  EXPECT_EQ(meta->user_fields, 1U);
  EXPECT_EQ(meta->content_type, 3);
  EXPECT_EQ(meta->checksum_type, 1);
  EXPECT_EQ(meta->checksum_value, "\1\2\3\4");
  EXPECT_TRUE(meta->checksum_with_attachment);
  std::string fields;
  read_user_fields(bytes, [&](std::string_view key, std::string_view value) {
    fields += std::string(key) + "=" + std::string(value);
  });
  EXPECT_EQ(fields, "k=v");
}

TEST(BaiduStdMeta, AMetaCutAnywhereIsRefusedOrLacksItsLastFields) {
  const std::vector<std::byte> whole = hex(vectors::request);
  const Bytes meta = meta_of(whole);
  for (std::size_t cut = 0; cut < meta.size(); ++cut) {
    // A separate block, so that a read beyond it is detected.
    const std::vector<std::byte> part(meta.begin(), meta.begin() + static_cast<std::ptrdiff_t>(cut));
    const Result<RpcMeta> parsed = parse_meta(part);
    EXPECT_EQ(parsed.has_value(), cut == 0 || cut == meta.size() - 2) << cut;
  }
}

TEST(BaiduStdMeta, MissingRequiredFieldsAreRefused) {
  EXPECT_FALSE(parse_meta(hex("0a03 0a0161")));             // No method_name.
  EXPECT_FALSE(parse_meta(hex("0a03 120161")));             // No service_name.
  EXPECT_FALSE(parse_meta(hex("4202 1001")));               // stream_settings without a stream_id.
  EXPECT_FALSE(parse_meta(hex("3202 0801")));               // chunk_info without a chunk_id.
  EXPECT_TRUE(parse_meta(hex("0a03 0a0161 0a03 120162")));  // Two parts of one submessage are merged.
}

TEST(BaiduStdMeta, MalformedFieldsAreRefused) {
  EXPECT_FALSE(parse_meta(hex("20ffffffffffffffffffff01")));  // A varint of eleven bytes.
  EXPECT_FALSE(parse_meta(hex("0000")));                      // Field number 0.
  EXPECT_FALSE(parse_meta(hex("0b0c")));                      // A group.
  EXPECT_FALSE(parse_meta(hex("0aff01 00")));                 // Longer than the meta.
  EXPECT_FALSE(parse_meta(hex("4a02 0a05")));                 // The same within user_fields.
  EXPECT_FALSE(parse_meta(hex("a1 06 00")));                  // A fixed64 that ends early.
  // Unknown fields of every type are skipped, and so are known numbers with another type.
  EXPECT_TRUE(parse_meta(hex("a106 0102030405060708 a506 01020304 aa06 00 a006 05 2d 01020304")));
}

TEST(BaiduStdMeta, ExtraStreamIdsAreReadInBothForms) {
  const auto ids = [](std::string_view text) { return parse_meta(hex(text)).value().stream.value().extra_ids; };
  EXPECT_EQ(ids("4206 0801 2002 2003"), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(ids("420a 0801 2204 02ac0203 2005"), (std::vector<std::int64_t>{2, 300, 3, 5}));  // Packed, and one alone.
  EXPECT_EQ(ids("4202 0801"), std::vector<std::int64_t>{});
  EXPECT_FALSE(parse_meta(hex("4206 0801 2202 0280")));  // The last id of the packed ones is cut.
  std::string many = "0801";
  for (std::size_t i = 0; i < StreamSettings::extra_streams_max; ++i) many += "2007";
  const auto settings = [](const std::string& fields) {
    const std::size_t size = fields.size() / 2;
    std::vector<std::byte> meta{std::byte{0x42}, std::byte(size % 128 + 128), std::byte(size / 128)};
    for (const std::byte one : hex(fields)) meta.push_back(one);
    return parse_meta(meta).value().stream.value();
  };
  EXPECT_EQ(settings(many).extra_ids.size(), StreamSettings::extra_streams_max);
  EXPECT_FALSE(settings(many).too_many);
  EXPECT_EQ(settings(many + "2007").extra_ids.size(), StreamSettings::extra_streams_max);
  EXPECT_TRUE(settings(many + "2007").too_many);
}

TEST(BaiduStdMeta, WrittenFieldsAreReadBack) {
  const RpcMeta meta{.request = RequestMeta{.service = "s.S",
                                            .method = "m",
                                            .log_id = -5,
                                            .trace_id = 1LL << 60,
                                            .span_id = 2,
                                            .parent_span_id = 3,
                                            .request_id = "id",
                                            .timeout_ms = -1},
                     .compress_type = 1,
                     .correlation_id = 1LL << 62,
                     .attachment_size = 1 << 30,
                     .authentication_data = "secret",
                     .stream = StreamSettings{-7, true, false, true, {-1, 0, 1LL << 40}},
                     .content_type = 2,
                     .checksum_type = 1,
                     .checksum_with_attachment = true};
  const Metadata fields = {{"key", "value"}, {"", ""}};
  const std::vector<std::byte> bytes = encoded(meta, &fields);
  const Result<RpcMeta> parsed = parse_meta(bytes);
  ASSERT_TRUE(parsed) << parsed.error().text;
  EXPECT_EQ(parsed->request, meta.request);
  EXPECT_EQ(parsed->stream, meta.stream);
  EXPECT_EQ(parsed->correlation_id, meta.correlation_id);
  EXPECT_EQ(parsed->attachment_size, meta.attachment_size);
  EXPECT_EQ(parsed->authentication_data, "secret");
  EXPECT_EQ(parsed->checksum_value.size(), checksum_bytes);
  EXPECT_EQ(parsed->user_fields, 2U);
  EXPECT_TRUE(parsed->checksum_with_attachment);
}

TEST(BaiduStdMeta, StreamFrames) {
  const std::vector<std::byte> data = hex(vectors::stream_data);
  const StreamFrameMeta expected{5, 9, StreamFrameType::data, false, 0};
  EXPECT_EQ(parse_stream_meta(meta_of(data)).value(), expected);
  const std::vector<std::byte> feedback = hex(vectors::stream_feedback);
  const StreamFrameMeta consumed{5, 9, StreamFrameType::feedback, false, 300};
  EXPECT_EQ(parse_stream_meta(meta_of(feedback)).value(), consumed);
  for (const StreamFrameMeta& meta :
       {expected, consumed, StreamFrameMeta{-1, 2, StreamFrameType::reset},
        StreamFrameMeta{3, 4, StreamFrameType::data, true}, StreamFrameMeta{3, 4, StreamFrameType::end},
        StreamFrameMeta{.stream_id = 3, .type = StreamFrameType::data, .result = true},
        StreamFrameMeta{.stream_id = 3, .type = StreamFrameType::reset, .error_code = -2001, .error_text = "reason"}}) {
    std::vector<std::byte> bytes(stream_meta_bytes(meta));
    EXPECT_EQ(write_stream_meta(bytes.data(), meta), bytes.data() + bytes.size());
    EXPECT_EQ(parse_stream_meta(bytes).value(), meta);
  }
  EXPECT_FALSE(parse_stream_meta(hex("1009 1803")));
  EXPECT_FALSE(parse_stream_meta(hex("0805 10")));
  EXPECT_EQ(parse_stream_meta(hex("0805 1809"))->type, StreamFrameType::unknown);
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
