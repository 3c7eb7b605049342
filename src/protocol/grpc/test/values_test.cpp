#include <gtest/gtest.h>

#include <string>

#include "protocol/grpc/compression.h"
#include "protocol/grpc/header_fields.h"
#include "protocol/grpc/header_values.h"
#include "protocol/grpc/status.h"

namespace hawser::protocol::grpc {
namespace {

using namespace std::chrono_literals;

TEST(GrpcValues, Timeout) {
  EXPECT_EQ(parse_timeout("1H"), Duration(1h));
  EXPECT_EQ(parse_timeout("100m"), Duration(100ms));
  EXPECT_EQ(parse_timeout("99999999u"), Duration(99'999'999us));
  EXPECT_EQ(parse_timeout("0n"), Duration(0ns));
  EXPECT_EQ(parse_timeout("99999999H"), forever);
  for (const char* wrong : {"", "S", "5", "1x", "-1S", "123456789S", "1 S", "1.5S"}) {
    EXPECT_FALSE(parse_timeout(wrong)) << wrong;
  }
  EXPECT_EQ(format_timeout(0ns), "0n");
  EXPECT_EQ(format_timeout(-5s), "0n");
  EXPECT_EQ(format_timeout(1ms), "1000000n");
  EXPECT_EQ(format_timeout(1s), "1000000u");
  EXPECT_EQ(format_timeout(1s + 1ns), "1000001u");
  EXPECT_EQ(format_timeout(99'999s), "99999000m");
  EXPECT_EQ(format_timeout(100'000s), "100000S");
  EXPECT_EQ(format_timeout(forever), "2562048H");
}

TEST(GrpcValues, PercentEncoding) {
  const std::string text = "\t\ntest with whitespace\r\nand Unicode BMP \xE2\x98\xBA and 100 %\t\n";
  EXPECT_EQ(percent_decode(percent_encode(text)), text);
  EXPECT_EQ(percent_encode("a%b\n"), "a%25b%0A");
  // Cut by the encoded length, at a character.
  std::string euros;
  for (int i = 0; i < 5000; ++i) euros += "\xE2\x82\xAC";
  for (std::size_t max = 0; max < 40; ++max) {
    EXPECT_EQ(percent_encode(euros, max).size(), max / 9 * 9);
    EXPECT_EQ(percent_encode("a" + euros, max + 1).size(), max / 9 * 9 + 1);
    EXPECT_EQ(percent_encode(std::string(100, 'a'), max).size(), max);
  }
  EXPECT_EQ(percent_encode("\xE2\x82\xAC", 9), "%E2%82%AC");
  EXPECT_EQ(percent_encode("ab", 2), "ab");
  EXPECT_EQ(percent_decode("%zz%4"), "%zz%4");
  EXPECT_EQ(percent_decode("%41%4a"), "AJ");
}

TEST(GrpcValues, Base64) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (std::size_t size = 0; size <= 256; ++size) {
    const std::string bytes = all.substr(0, size);
    std::string encoded = base64_encode(bytes);
    for (int padding = 0; padding < 2; ++padding) {
      std::string decoded;
      ASSERT_TRUE(base64_decode(encoded, decoded));
      ASSERT_EQ(decoded, bytes);
      while (encoded.size() % 4 != 0) encoded += '=';
    }
  }
  std::string out;
  EXPECT_FALSE(base64_decode("A", out));
  EXPECT_FALSE(base64_decode("A*==", out));
}

// A proxy that joins fields puts a space behind the comma.
TEST(GrpcValues, BinaryFieldsThatWereJoinedAreSeparate) {
  HeaderFields separate;
  for (const char* const value : {"AQI=", "AwQ", ""}) separate.add("x-bin", value, 16'384);
  for (const char* const joined : {"AQI=,AwQ,", "AQI=, AwQ, ", " AQI \t,\tAwQ= , "}) {
    HeaderFields fields;
    fields.add("x-bin", joined, 16'384);
    EXPECT_FALSE(fields.bad_metadata) << joined;
    EXPECT_EQ(fields.metadata_entries, 3U) << joined;
    EXPECT_EQ(fields.metadata, separate.metadata) << joined;
  }
  for (const char* const wrong : {"A QI=", "AQI= =", "AQI=;AwQ"}) {
    HeaderFields fields;
    fields.add("x-bin", wrong, 16'384);
    EXPECT_TRUE(fields.bad_metadata) << wrong;
  }
}

TEST(GrpcValues, GrpcStatus) {
  EXPECT_EQ(parse_status("0"), 0);
  EXPECT_EQ(parse_status("16"), 16);
  EXPECT_EQ(parse_status("17"), 2);
  EXPECT_EQ(parse_status("01"), -1);
  EXPECT_EQ(parse_status(""), -1);
  EXPECT_EQ(status_of(Error::application(5, "")), GrpcStatus::not_found);
  EXPECT_EQ(status_of(Error::of_call(ErrorCode::permission_denied, {})), GrpcStatus::permission_denied);
  EXPECT_EQ(status_of(Error::of_call(ErrorCode::unauthenticated, {})), GrpcStatus::unauthenticated);
  EXPECT_EQ(status_of(Error::application(500, "")), GrpcStatus::unknown);
  EXPECT_EQ(error_of(5, "", false), (Error{ErrorCode::application, ErrorScope::call, Initiator::peer, 5, ""}));
  EXPECT_EQ(error_of(12, "", true).code, ErrorCode::unknown_method);
  EXPECT_EQ(error_of(12, "", false).code, ErrorCode::application);
  // A handler may answer `unavailable` or `resource_exhausted` after it has done something.
  for (int status = 1; status <= status_max; ++status) EXPECT_FALSE(error_of(status, "", false).not_executed());
}

TEST(GrpcValues, Compression) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * 7919);
  for (const Encoding encoding : {Encoding::gzip, Encoding::zstd}) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, text.size()}) {
      const Result<Buffer> packed = compress(encoding, as_bytes(std::string_view(text).substr(0, size)));
      ASSERT_TRUE(packed);
      detail::ReceiveCharge charge;
      const Result<Buffer> whole = decompress(encoding, packed->bytes(), size, nullptr, charge);
      ASSERT_TRUE(whole) << size << whole.error().text;
      EXPECT_EQ(whole->text(), text.substr(0, size));
      if (size > 1) {
        EXPECT_EQ(decompress(encoding, packed->bytes(), size - 1, nullptr, charge).error().code,
                  ErrorCode::limit_exceeded);
      }
      for (std::size_t cut = 1; cut < packed->size(); cut += 1 + packed->size() / 50) {
        EXPECT_FALSE(decompress(encoding, packed->bytes().first(cut), 1 << 20, nullptr, charge)) << cut;
      }
    }
  }
}

// A small input that becomes a large message is refused when the limit is reached, and not before it is paid for.
// A long list of unknown names costs its sender one byte if HPACK refers to it.
TEST(GrpcValues, LongListsOfCompressions) {
  EXPECT_TRUE(Encodings::parse("a, b, identity, gzip").has(Encoding::gzip));
  EXPECT_FALSE(Encodings::parse(std::string(1000, ',') + "gzip").has(Encoding::gzip));
}

// grpcio sends the path first. The call failed with UNKNOWN, because 405 was the answer.
TEST(GrpcValues, ATooLongPathLeavesTheKindOfTheRequest) {
  HeaderFields fields;
  fields.add(":path", std::string(60'000, 'x'), 16'384);
  fields.add(":method", "POST", 16'384);
  fields.add("content-type", "application/grpc", 16'384);
  EXPECT_TRUE(fields.too_large);
  EXPECT_TRUE(fields.post);
  EXPECT_TRUE(fields.grpc_content);
}

// Media types have no case: RFC 9110, 8.3.1.
TEST(GrpcValues, ContentTypesOfGrpc) {
  const auto is_grpc = [](std::string_view type) {
    HeaderFields fields;
    fields.add("content-type", type, 16'384);
    return fields.grpc_content;
  };
  for (const char* const type : {"application/grpc", "Application/GRPC", "application/grpc+proto",
                                 "application/GRPC;charset=utf-8", "application/grpc ; charset=utf-8"}) {
    EXPECT_TRUE(is_grpc(type)) << type;
  }
  for (const char* const type : {"", "application/grp", "application/grpc-web", "text/grpc", "application/grpcx"}) {
    EXPECT_FALSE(is_grpc(type)) << type;
  }
}

TEST(GrpcValues, CompressionBomb) {
  for (const Encoding encoding : {Encoding::gzip, Encoding::zstd}) {
    const Result<Buffer> packed = compress(encoding, as_bytes(std::string(50'000'000, '\0')));
    ASSERT_TRUE(packed);
    detail::ReceiveBudget budget(1 << 20, 1 << 20);
    detail::ReceiveAccount account(&budget);
    {
      detail::ReceiveCharge charge;
      EXPECT_EQ(decompress(encoding, packed->bytes(), 4 << 20, &account, charge).error().code, ErrorCode::overloaded);
      EXPECT_LE(account.used(), std::size_t{1} << 20);
    }
    EXPECT_EQ(account.used(), 0U);
  }
}

}  // namespace
}  // namespace hawser::protocol::grpc
