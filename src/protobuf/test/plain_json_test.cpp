#include "protobuf/plain_json.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "protobuf/test/plain.pb.h"

namespace hawser::pb {
namespace {

using probe::Plain;
namespace util = google::protobuf::util;

// Makes messages. `plain`: only fields that PlainJson knows.
class Maker {
 public:
  Maker(unsigned seed, bool plain) : random_(seed), plain_(plain) {}

  Plain make(int depth = 0) {
    Plain out;
    if (coin()) out.set_text(text());
    if (coin()) out.set_data(bytes());
    if (coin()) out.set_i32(static_cast<std::int32_t>(number()));
    if (coin()) out.set_s32(static_cast<std::int32_t>(number()));
    if (coin()) out.set_sf32(static_cast<std::int32_t>(number()));
    if (coin()) out.set_u32(static_cast<std::uint32_t>(number()));
    if (coin()) out.set_f32(static_cast<std::uint32_t>(number()));
    if (coin()) out.set_i64(static_cast<std::int64_t>(number()));
    if (coin()) out.set_s64(static_cast<std::int64_t>(number()));
    if (coin()) out.set_sf64(static_cast<std::int64_t>(number()));
    if (coin()) out.set_u64(number());
    if (coin()) out.set_f64(number());
    if (coin()) out.set_flag(true);
    if (coin()) out.set_colour(coin() ? probe::RED : probe::BLUE);
    for (std::uint64_t i = below(3); i-- > 0;) out.add_texts(text());
    for (std::uint64_t i = below(3); i-- > 0;) out.add_numbers(static_cast<std::int32_t>(number()));
    for (std::uint64_t i = below(3); i-- > 0;) out.add_wide(static_cast<std::int64_t>(number()));
    for (std::uint64_t i = below(3); i-- > 0;) out.add_colours(coin() ? probe::NONE : probe::BLUE);
    for (std::uint64_t i = below(3); i-- > 0;) out.add_blobs(bytes());
    for (std::uint64_t i = below(3); i-- > 0;) out.add_flags(coin());
    for (std::uint64_t i = below(3); i-- > 0;) out.add_fixed(static_cast<std::uint32_t>(number()));
    for (std::uint64_t i = below(3); i-- > 0;) out.add_unpacked_numbers(static_cast<std::int32_t>(number()));
    if (coin()) out.set_maybe_text(coin() ? "" : text());
    if (coin()) out.set_maybe_number(coin() ? 0 : static_cast<std::int64_t>(number()));
    if (coin()) out.set_maybe_flag(coin());
    if (coin()) out.set_renamed(text());
    if (depth < 3 && below(3) == 0) *out.mutable_inner() = make(depth + 1);
    for (std::uint64_t i = depth < 2 ? below(3) : 0; i-- > 0;) *out.add_plains() = make(depth + 1);
    if (plain_) return out;
    if (below(4) == 0) out.set_real(static_cast<double>(number()) / 7);
    if (below(4) == 0) (*out.mutable_counts())[text()] = 1;
    if (below(4) == 0) out.set_left(text());
    if (below(4) == 0) out.set_right(5);
    if (below(4) == 0) out.set_text("caf\u00e9 <b> \x01");
    if (below(4) == 0) out.set_colour(static_cast<probe::Colour>(77));
    return out;
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

 private:
  bool coin() { return below(2) == 0; }
  std::uint64_t number() {
    constexpr std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t edges[] = {0, 1, max, max >> 1, (max >> 1) + 1, 1U << 31, (1U << 31) - 1, 127, 128};
    return coin() ? edges[below(std::size(edges))] : random_() >> below(64);
  }
  std::string text() {
    std::string out;
    for (std::uint64_t i = below(12); i-- > 0;) {
      char c = static_cast<char>(' ' + below(95));
      if (plain_ && (c == '<' || c == '>')) c = '"';
      out.push_back(c);
    }
    return out;
  }
  std::string bytes() {
    std::string out;
    for (std::uint64_t i = below(12); i-- > 0;) out.push_back(static_cast<char>(random_()));
    return out;
  }

  std::mt19937_64 random_;
  const bool plain_;
};

const PlainJson& plain() {
  static const PlainJson json(Plain::descriptor());
  return json;
}

std::string by_util(const Plain& message) {
  std::string json;
  EXPECT_TRUE(util::MessageToJsonString(message, &json).ok());
  return json;
}

TEST(PlainJson, WritesWhatLibprotobufWrites) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    const Plain message = Maker(seed, true).make();
    const std::string bytes = message.SerializeAsString();
    std::string json;
    ASSERT_TRUE(plain().to_json(as_bytes(std::string_view(bytes)), json)) << message.ShortDebugString();
    ASSERT_EQ(json, by_util(message)) << "seed " << seed;
  }
}

TEST(PlainJson, ReadsWhatLibprotobufReads) {
  unsigned direct = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    const Plain message = Maker(seed, true).make();
    const std::string json = by_util(message);
    std::string bytes;
    if (!plain().to_bytes(json, bytes)) continue;  // Escapes are left to libprotobuf.
    ++direct;
    Plain back;
    ASSERT_TRUE(back.ParseFromString(bytes)) << json;
    ASSERT_EQ(back.SerializeAsString(), message.SerializeAsString()) << json;
  }
  EXPECT_GT(direct, 50U);
}

TEST(PlainJson, IsNeverOfAnotherOpinion) {
  unsigned accepted = 0;
  for (unsigned seed = 1; seed <= 4'000; ++seed) {
    Maker maker(seed, seed % 2 == 0);
    std::string json = by_util(maker.make(2));
    constexpr std::string_view likely = "{}[]\",:0123456789-+.eE \\tfn\x80\x01/=_";
    if (!json.empty()) json[maker.below(json.size())] = likely[maker.below(likely.size())];
    std::string bytes;
    if (!plain().to_bytes(json, bytes)) continue;
    ++accepted;
    Plain direct;
    ASSERT_TRUE(direct.ParseFromString(bytes)) << json;
    Plain expected;
    const auto status = util::JsonStringToMessage(json, &expected);
    ASSERT_TRUE(status.ok()) << json << " " << status.ToString();
    ASSERT_EQ(direct.SerializeAsString(), expected.SerializeAsString()) << json;
  }
  EXPECT_GT(accepted, 100U);
}

TEST(PlainJson, OtherFieldsAreLeftToLibprotobuf) {
  unsigned direct = 0;
  for (unsigned seed = 1; seed <= 1'000; ++seed) {
    const Plain message = Maker(seed, false).make();
    const std::string bytes = message.SerializeAsString();
    std::string json;
    if (!plain().to_json(as_bytes(std::string_view(bytes)), json)) continue;
    ++direct;
    ASSERT_EQ(json, by_util(message)) << message.ShortDebugString();
  }
  EXPECT_LT(direct, 1'000U);
}

TEST(PlainJson, MutatedBytesAreReadWithinTheirBounds) {
  for (unsigned seed = 1; seed <= 2'000; ++seed) {
    Maker maker(seed, true);
    std::string bytes = maker.make(1).SerializeAsString();
    if (bytes.empty()) continue;
    bytes[maker.below(bytes.size())] = static_cast<char>(maker.below(256));
    bytes.resize(maker.below(bytes.size() + 1));
    std::string json;
    static_cast<void>(plain().to_json(as_bytes(std::string_view(bytes)), json));
  }
}

TEST(PlainJson, DeepMessagesAreLeftToLibprotobuf) {
  Plain message;
  Plain* top = &message;
  for (int i = 0; i < 40; ++i) top = top->mutable_inner();
  const std::string bytes = message.SerializeAsString();
  std::string json;
  EXPECT_FALSE(plain().to_json(as_bytes(std::string_view(bytes)), json));
  std::string back;
  EXPECT_FALSE(plain().to_bytes(by_util(message), back));
}

}  // namespace
}  // namespace hawser::pb
