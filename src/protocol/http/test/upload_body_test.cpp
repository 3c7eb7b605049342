#include "protocol/http/upload_body.h"

#include <gtest/gtest.h>

namespace hawser::protocol::http {
namespace {

TEST(UploadBody, OfKnownLengthIsDoneWithItsLastByte) {
  UploadBody body(5);
  EXPECT_FALSE(body.chunked());
  EXPECT_FALSE(body.done());
  EXPECT_FALSE(body.misuse(3, false));
  body.add(3, false);
  EXPECT_FALSE(body.done());
  EXPECT_FALSE(body.misuse(2, false)) << "the last byte ends it";
  EXPECT_FALSE(body.misuse(2, true));
  body.add(2, false);
  EXPECT_TRUE(body.done());
  EXPECT_FALSE(body.misuse(0, true)) << "finish() after the last byte";
  EXPECT_EQ(body.misuse(1, false)->text, "the body is complete");
}

TEST(UploadBody, OfKnownLengthTakesNotMoreAndEndsNotEarlier) {
  UploadBody body(5);
  body.add(3, false);
  EXPECT_EQ(body.misuse(3, false)->text,
            "HttpUpload::length is 5, which leaves 2 bytes, and the body has 3 more at least");
  EXPECT_EQ(body.misuse(1, true)->text, "HttpUpload::length is 5, which leaves 2 bytes, and the body has 1 more");
  EXPECT_EQ(body.misuse(0, true)->code, ErrorCode::invalid_argument);
  EXPECT_FALSE(body.misuse(0, false));
}

TEST(UploadBody, OfUnknownLengthEndsWithItsLastPart) {
  UploadBody body(std::nullopt);
  EXPECT_TRUE(body.chunked());
  EXPECT_FALSE(body.misuse(1'000'000, false));
  body.add(1'000'000, false);
  EXPECT_FALSE(body.done());
  body.add(0, true);
  EXPECT_TRUE(body.done());
  EXPECT_TRUE(body.misuse(1, true));
}

TEST(UploadBody, OnlyAChunkedBodyHasALastPartWithoutBytes) {
  EXPECT_TRUE(UploadBody(std::nullopt).sends(0, true));
  EXPECT_FALSE(UploadBody(std::nullopt).sends(0, false));
  EXPECT_FALSE(UploadBody(5).sends(0, true));
  EXPECT_TRUE(UploadBody(5).sends(1, false));
}

TEST(UploadBody, WithoutBytesIsDoneFromTheBeginning) {
  EXPECT_TRUE(UploadBody(0).done());
  EXPECT_TRUE(UploadBody(0).misuse(1, true));
  EXPECT_FALSE(UploadBody(0).misuse(0, true));
}

}  // namespace
}  // namespace hawser::protocol::http
