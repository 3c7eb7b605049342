#include "protocol/http/gzip.h"

#include <gtest/gtest.h>

#include <string>

#include "compress/deflate.h"

namespace hawser::protocol::http {
namespace {

TEST(HttpGzip, AcceptEncodingIsReadWithItsWeights) {
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "br, gzip", "gzip;q=1.0", "gzip ; q=0.001", "*", "*;q=0.1",
                          "br;q=0, *", "deflate, gzip;q=0.5, *;q=0", ",gzip,"}) {
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  }
  for (const char* no : {"", "identity", "br", "gzipped", "gzip;q=0", "gzip; q=0.000", "GZIP;Q=0", "*;q=0",
                         "*, gzip;q=0", "gzip;q=0, *", "br;gzip"}) {
    EXPECT_FALSE(accepts_gzip(no)) << no;
  }
  EXPECT_TRUE(accepts_gzip(std::string(20, ',') + "gzip"));
  EXPECT_FALSE(accepts_gzip(std::string(4000, ',') + "gzip")) << "a list that is only long";
}

TEST(HttpGzip, TypesThatBecomeSmaller) {
  for (const char* yes : {"text/html", "TEXT/plain; charset=utf-8", "application/json", "application/problem+json",
                          "image/svg+xml", "application/javascript"}) {
    EXPECT_TRUE(is_compressible(yes)) << yes;
  }
  for (const char* no : {"", "image/png", "application/octet-stream", "application/proto", "video/mp4", "+json"}) {
    EXPECT_FALSE(is_compressible(no)) << no;
  }
}

TEST(HttpGzip, BodiesSurvive) {
  if (!can_gzip()) GTEST_SKIP() << "built without zlib";
  for (const std::size_t size : {100U, 10'000U, 1'000'000U}) {
    const std::string text(size, 'x');
    const std::optional<std::string> packed = gzip(as_bytes(text));
    ASSERT_TRUE(packed);
    EXPECT_LT(packed->size(), size);
    EXPECT_EQ(compress::announced_bytes(as_bytes(*packed)), size);
    const Result<Buffer> unpacked = gunzip(as_bytes(*packed), size);
    ASSERT_TRUE(unpacked);
    EXPECT_EQ(unpacked->text(), text);
    // The limit counts what appears.
    EXPECT_FALSE(gunzip(as_bytes(*packed), size - 1));
    for (const std::size_t cut : {std::size_t{0}, std::size_t{5}, packed->size() - 1}) {
      EXPECT_FALSE(gunzip(as_bytes(packed->substr(0, cut)), size)) << cut;
    }
    EXPECT_FALSE(gunzip(as_bytes(*packed + "x"), size));
  }
  EXPECT_FALSE(gzip(as_bytes("abc"))) << "it would become longer";
}

}  // namespace
}  // namespace hawser::protocol::http
