#include "protocol/baidu_std/compression.h"

#include <gtest/gtest.h>

#include <string>

#include "protocol/baidu_std/error_codes.h"
#include "protocol/baidu_std/test/vectors.h"

namespace hawser::protocol::baidu_std {
namespace {

constexpr std::size_t limit = std::size_t{1} << 20;

class BaiduStdCompression : public testing::TestWithParam<Compression> {};

TEST_P(BaiduStdCompression, DataIsTheSameAfterwards) {
  for (const std::size_t size : {0UZ, 1UZ, 128UZ, 5000UZ, limit}) {
    std::string text(size, 'a');
    for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * 31);
    const Result<Buffer> packed = compress(GetParam(), as_bytes(text));
    ASSERT_TRUE(packed);
    const Result<Buffer> unpacked = decompress(GetParam(), packed->bytes(), limit);
    ASSERT_TRUE(unpacked) << size << unpacked.error().text;
    EXPECT_TRUE(unpacked->text() == text) << size;
  }
}

TEST_P(BaiduStdCompression, ABombEndsAtTheLimit) {
  const std::string zeros(4 * limit, '\0');
  const Result<Buffer> packed = compress(GetParam(), as_bytes(zeros));
  ASSERT_TRUE(packed);
  const Result<Buffer> unpacked = decompress(GetParam(), packed->bytes(), 4 * limit - 1);
  ASSERT_FALSE(unpacked);
  EXPECT_EQ(unpacked.error().code, ErrorCode::limit_exceeded) << unpacked.error().text;
}

TEST_P(BaiduStdCompression, TheBoundOfTheResultIsKnownBefore) {
  for (const std::size_t size : {0UZ, 100UZ, limit}) {
    const std::string zeros(size, '\0');
    const Buffer packed = *compress(GetParam(), as_bytes(zeros));
    const std::size_t most = unpacked_bytes_max(GetParam(), packed.bytes(), 4 * limit);
    EXPECT_GE(most, size);
    EXPECT_LE(most, 1032 * packed.size());
    EXPECT_TRUE(decompress(GetParam(), packed.bytes(), most));
    EXPECT_LE(unpacked_bytes_max(GetParam(), packed.bytes(), 50), 50U);
  }
}

TEST_P(BaiduStdCompression, DamagedDataIsRefused) {
  const std::string text(1000, 'x');
  const Buffer packed = *compress(GetParam(), as_bytes(text));
  for (std::size_t cut = 0; cut < packed.size(); ++cut) {
    const Buffer part = Buffer::copy_of(packed.bytes().first(cut));
    EXPECT_FALSE(decompress(GetParam(), part.bytes(), limit)) << cut;
  }
  const std::string longer = std::string(packed.text()) + "x";
  EXPECT_FALSE(decompress(GetParam(), as_bytes(longer), limit));
}

INSTANTIATE_TEST_SUITE_P(Types, BaiduStdCompression,
                         testing::Values(Compression::snappy, Compression::gzip, Compression::zlib),
                         [](const auto& type) {
                           return std::string(type.param == Compression::snappy ? "Snappy"
                                              : type.param == Compression::gzip ? "Gzip"
                                                                                : "Zlib");
                         });

// "aaaaaaaaaa" in the raw format of snappy: the length, one literal, one copy of nine bytes from one byte before.
TEST(BaiduStdSnappy, TheFormatIsRawAndAnAnnouncementAllocatesNothing) {
  const auto unpacked = decompress(Compression::snappy, vectors::hex("0a 00 61 1501"), limit);
  ASSERT_TRUE(unpacked) << unpacked.error().text;
  EXPECT_EQ(unpacked->text(), "aaaaaaaaaa");
  const auto announced = decompress(Compression::snappy, vectors::hex("80808008 00"), std::size_t{64} << 20);
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, ErrorCode::invalid_argument);
}

TEST(BaiduStdErrors, EveryCodeHasACodeOnTheOtherSide) {
  for (int i = 1; i <= 13; ++i) {
    const Error error = Error::of_call(static_cast<ErrorCode>(i), "");
    EXPECT_NE(rpc_error_of(error), 0) << i;
  }
  const auto there_and_back = [](ErrorCode code) { return error_code_of(rpc_error_of(Error::of_call(code, ""))); };
  for (const ErrorCode code :
       {ErrorCode::invalid_argument, ErrorCode::unknown_method, ErrorCode::cancelled, ErrorCode::deadline_exceeded,
        ErrorCode::overloaded, ErrorCode::unavailable, ErrorCode::internal, ErrorCode::unauthenticated}) {
    EXPECT_EQ(there_and_back(code), code) << to_string(code);
  }
  EXPECT_EQ(rpc_error_of(Error::of_call(ErrorCode::unauthenticated, "")), 1004);
  EXPECT_EQ(rpc_error_of(Error::of_call(ErrorCode::permission_denied, "")), 13);
  EXPECT_EQ(rpc_error_of(Error::application(77, "")), 77);
  EXPECT_EQ(rpc_error_of(Error::application(0, "")), 2001);
  EXPECT_EQ(error_code_of(77), ErrorCode::application);
  EXPECT_EQ(error_code_of(1001), ErrorCode::unknown_method);
  EXPECT_EQ(error_code_of(2004), ErrorCode::overloaded);
  // A client of bRPC sends a call again after EFAILEDSOCKET. A call whose outcome is not known must not become one.
  EXPECT_EQ(rpc_error_of(Error::of_call(ErrorCode::outcome_unknown, "")), 2001);
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
