#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "hawser/protobuf.h"
#include "protobuf/test/required.pb.h"
#include "protobuf/test/shop.pb.h"

namespace hawser::pb {
namespace {

using codec::DecodeLimits;
using probe::Item;
using probe::OrderRequest;
using probe::Strict;
using probe::Tree;

template <class... T>
std::string encoded(const T&... values) {
  const codec::EncodedSize size = codec::encoded_size(values...);
  if (size.too_large) return std::string("refused: ") + size.why_not;
  std::string body(size.body, '\0');
  codec::Encoder encoder(reinterpret_cast<std::byte*>(body.data()), nullptr);
  codec::encode_all(encoder, values...);
  EXPECT_EQ(reinterpret_cast<char*>(encoder.position()), body.data() + body.size());
  return body;
}

// Decodes `values`. Returns the text of the error, or nothing.
template <class... T>
std::string decoded(std::string_view body, std::tuple<T...>& values, const DecodeLimits& limits = {},
                    codec::DecodeBudget* budget = nullptr) {
  codec::Decoder decoder(as_bytes(body), {}, limits, nullptr, budget);
  if (codec::decode_all(decoder, values)) return {};
  return std::string(to_string(decoder.error().code)) + ": " + decoder.error().text;
}

OrderRequest order() {
  OrderRequest request;
  request.set_item("rope");
  request.set_count(7);
  return request;
}

std::string nested(int depth) {
  Tree tree;
  for (Tree* at = &tree; depth > 0; --depth) at = at->add_branches();
  return tree.SerializeAsString();
}

// A message that needs much more memory than it has bytes: branches without content.
std::string wide(std::size_t branches) {
  std::string bytes;
  for (std::size_t i = 0; i < branches; ++i) bytes.append("\x0a\x00", 2);
  return bytes;
}

class Budget final : public codec::DecodeBudget {
 public:
  explicit Budget(std::size_t room) : room_(room) {}
  bool acquire(std::size_t bytes) noexcept override {
    if (bytes > room_) return false;
    room_ -= bytes;
    acquired += bytes;
    return true;
  }
  std::size_t acquired = 0;

 private:
  std::size_t room_;
};

TEST(Message, AloneItIsItsProtobufBytes) {
  EXPECT_EQ(encoded(order()), order().SerializeAsString());
  std::tuple<OrderRequest> back;
  EXPECT_EQ(decoded(order().SerializeAsString(), back), "");
  EXPECT_EQ(std::get<0>(back).item(), "rope");
  EXPECT_EQ(std::get<0>(back).count(), 7);
}

TEST(Message, AnEmptyOneTakesNoBytes) {
  EXPECT_EQ(encoded(OrderRequest()), "");
  std::tuple<OrderRequest> back;
  EXPECT_EQ(decoded("", back), "");
  EXPECT_FALSE(std::get<0>(back).has_item());
}

TEST(Message, AmongOtherValuesItHasALength) {
  const std::vector<OrderRequest> orders{order(), OrderRequest()};
  const std::string body = encoded(std::uint16_t{5}, orders, order());
  std::tuple<std::uint16_t, std::vector<OrderRequest>, OrderRequest> back;
  ASSERT_EQ(decoded(body, back), "");
  EXPECT_EQ(std::get<0>(back), 5);
  ASSERT_EQ(std::get<1>(back).size(), 2U);
  EXPECT_EQ(std::get<1>(back)[0].item(), "rope");
  EXPECT_EQ(std::get<1>(back)[1].ByteSizeLong(), 0U);
  EXPECT_EQ(std::get<2>(back).count(), 7);
}

TEST(Message, ALengthBeyondTheBodyIsRefused) {
  std::string body = encoded(std::uint8_t{1}, order());
  body.pop_back();
  std::tuple<std::uint8_t, OrderRequest> back;
  EXPECT_NE(decoded(body, back).find("protocol_error"), std::string::npos);
}

TEST(Message, EveryCutIsRefusedOrAShorterMessage) {
  const std::string body = order().SerializeAsString();
  for (std::size_t bytes = 0; bytes < body.size(); ++bytes) {
    std::tuple<OrderRequest> back;
    const std::string error = decoded(std::string_view(body).substr(0, bytes), back);
    if (!error.empty()) {
      EXPECT_NE(error.find("probe.OrderRequest"), std::string::npos) << error;
    }
  }
}

TEST(Message, AllMessagesHaveOneSignature) {
  EXPECT_EQ(codec::type_signature<OrderRequest>, codec::type_signature<Tree>);
  EXPECT_NE(codec::type_signature<OrderRequest>, codec::type_signature<std::string>);
}

TEST(Message, MalformedBytesNameTheType) {
  std::tuple<OrderRequest> back;
  const std::string error = decoded("\xff\xff\xff", back);
  EXPECT_NE(error.find("protocol_error"), std::string::npos) << error;
  EXPECT_NE(error.find("probe.OrderRequest"), std::string::npos) << error;
}

TEST(Message, DepthIsLimited) {
  const DecodeLimits ten{.message_depth_max = 10};
  std::tuple<Tree> back;
  EXPECT_EQ(decoded(nested(9), back, ten), "");
  EXPECT_NE(decoded(nested(11), back, ten).find("message_depth_max"), std::string::npos);
  EXPECT_EQ(decoded(nested(100), back), "");
  EXPECT_NE(decoded(nested(101), back).find("message_depth_max"), std::string::npos);
}

TEST(Message, ADeepBombDoesNotExhaustTheStack) {
  // Lengths from the inside out.
  std::string bomb;
  for (int i = 0; i < 20'000; ++i) {
    std::string length;
    for (std::size_t rest = bomb.size();; rest >>= 7) {
      if (rest < 128) {
        length.push_back(static_cast<char>(rest));
        break;
      }
      length.push_back(static_cast<char>(0x80 | (rest & 127)));
    }
    bomb = "\x0a" + length + bomb;
    if (bomb.size() > 60'000) break;
  }
  std::tuple<Tree> back;
  EXPECT_NE(decoded(bomb, back).find("probe.Tree"), std::string::npos);
  bomb.insert(0, wide(40'000));  // Long enough to be read in parts.
  EXPECT_NE(decoded(bomb, back).find("probe.Tree"), std::string::npos);
}

TEST(Message, MemoryIsLimited) {
  std::tuple<Tree> back;
  const DecodeLimits limits{.memory_factor_max = 16, .memory_bytes_base = 64 << 10};
  // A branch takes two bytes and far more than 32 bytes of memory.
  for (const std::size_t branches : {10'000, 30'000, 300'000}) {
    const std::string error = decoded(wide(branches), back, limits);
    EXPECT_NE(error.find("limit_exceeded"), std::string::npos) << branches << error;
    EXPECT_NE(error.find("probe.Tree"), std::string::npos) << error;
  }
  const DecodeLimits enough{.memory_factor_max = 200};
  EXPECT_EQ(decoded(wide(300'000), back, enough), "");
  EXPECT_EQ(std::get<0>(back).branches_size(), 300'000);
}

TEST(Message, ALimitEndsTheReadingBeforeTheMemoryIsTaken) {
  std::tuple<Tree> back;
  const DecodeLimits limits{.memory_factor_max = 0, .memory_bytes_base = 8 << 20};
  EXPECT_NE(decoded(wide(4'000'000), back, limits).find("limit_exceeded"), std::string::npos);
  // The rest of the 8 MB was not decoded.
  EXPECT_LT(std::get<0>(back).SpaceUsedLong(), std::size_t{32} << 20);
}

TEST(Message, UnknownFieldsAreCharged) {
  // Groups of an unknown field number within a flat message.
  std::string groups;
  for (int i = 0; i < 200'000; ++i) groups += "\x7b\x7c";
  std::tuple<Item> back;
  const DecodeLimits limits{.memory_factor_max = 4};
  EXPECT_NE(decoded(groups, back, limits).find("limit_exceeded"), std::string::npos);
  EXPECT_NE(decoded(groups.substr(0, 60'000), back, {.memory_factor_max = 4, .memory_bytes_base = 0}).find("limit"),
            std::string::npos);
}

TEST(Message, MemoryIsAcquiredFromTheBudget) {
  Budget none(0);
  std::tuple<Tree> tree;
  EXPECT_EQ(decoded(wide(10), tree, {}, &none), "");
  EXPECT_NE(decoded(wide(1'000), tree, {}, &none).find("overloaded"), std::string::npos);
  Budget some(std::size_t{64} << 20);
  EXPECT_EQ(decoded(wide(1'000), tree, {}, &some), "");
  EXPECT_GE(some.acquired, std::get<0>(tree).SpaceUsedLong() - 4096);
  Budget large(std::size_t{64} << 20);
  EXPECT_EQ(decoded(wide(100'000), tree, {.memory_factor_max = 100}, &large), "");
  EXPECT_GE(large.acquired, std::get<0>(tree).SpaceUsedLong() - 4096);
}

TEST(Message, LargeBytesAreReadInParts) {
  OrderRequest request;
  request.set_data(std::string(8 << 20, 'x'));
  request.set_item("large");
  std::tuple<OrderRequest> back;
  ASSERT_EQ(decoded(encoded(request), back), "");
  EXPECT_EQ(std::get<0>(back).data(), request.data());
  EXPECT_EQ(std::get<0>(back).item(), "large");
}

TEST(Message, ANewerMessageKeepsItsFields) {
  probe::Newer newer;
  newer.set_name("Ada");
  newer.set_age(36);
  newer.add_more("x");
  std::tuple<probe::Older> older;
  ASSERT_EQ(decoded(encoded(newer), older), "");
  EXPECT_EQ(std::get<0>(older).name(), "Ada");
  std::tuple<probe::Newer> again;
  ASSERT_EQ(decoded(encoded(std::get<0>(older)), again), "");
  EXPECT_EQ(std::get<0>(again).age(), 36);
}

TEST(Message, RequiredFieldsAreNamed) {
  Strict strict;
  strict.set_name("x");
  EXPECT_EQ(encoded(strict), "refused: a required field of probe.Strict is not set");
  EXPECT_EQ(codec::encoded_size(strict).code, ErrorCode::invalid_argument);
  std::tuple<Strict> back;
  const std::string error = decoded(strict.SerializePartialAsString(), back);
  EXPECT_NE(error.find("probe.Strict"), std::string::npos) << error;
  EXPECT_NE(error.find("age"), std::string::npos) << error;
}

}  // namespace
}  // namespace hawser::pb
