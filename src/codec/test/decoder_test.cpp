#include "hawser/codec/decoder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "codec/test/codec_testing.h"

// Messages that a hostile peer may send and that no Encoder produces.
namespace hawser::codec {
namespace {

struct Leaf {
  static constexpr std::size_t hawser_base_fields = 1;
  std::uint16_t number = 0;
  std::string note;
};
std::map<std::string, std::optional<int>> make_map() { return {{"a", 1}, {"b", std::nullopt}}; }
struct Everything {
  bool flag = true;
  std::uint64_t number = 7;
  std::string text = "text";
  std::string large = std::string(9'001, 'l');
  std::vector<std::vector<std::string>> texts = std::vector<std::vector<std::string>>(2, {"a", "b"});
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(3'001, 5);
  std::map<std::string, std::optional<int>> map = make_map();
  std::set<int> set{1, 2};
  std::deque<bool> flags{true, false};
  std::variant<std::monostate, int, std::string> choice = "choice";
  std::unique_ptr<std::string> pointer = std::make_unique<std::string>("pointer");
  std::vector<Leaf> leaves = std::vector<Leaf>(2, Leaf{2, std::string(9'000, 'n')});
  std::array<char, 3> array{'x', 'y', 'z'};
};

void expect_described(const Error& error) {
  EXPECT_TRUE(error.code == ErrorCode::protocol_error || error.code == ErrorCode::limit_exceeded) << error.describe();
  EXPECT_EQ(error.initiator, Initiator::peer);
  EXPECT_NE(error.text.find("can't decode "), std::string::npos) << error.text;
}

TEST(Decoder, EveryTruncationOfTheBodyFails) {
  const Message message = encode_message(Everything());
  EXPECT_EQ(encode_message(decode_message<Everything>(message)), message);
  for (std::size_t cut = 0; cut < message.body().size(); ++cut) {
    expect_described(decode_error<Everything>(make_message(message.body().first(cut), message.payload())));
  }
}

TEST(Decoder, EveryTruncationOfThePayloadFails) {
  const Message message = encode_message(Everything());
  for (std::size_t cut = 0; cut < message.payload().size(); cut += cut % 1'000 < 16 ? 1 : 61) {
    expect_described(decode_error<Everything>(make_message(message.body(), message.payload().first(cut))));
  }
}

TEST(Decoder, TrailingBytesFail) {
  const Message message = encode_message(Everything());
  Message longer = message;
  longer.body_block.push_back(std::byte{0});
  EXPECT_NE(decode_error<Everything>(longer).text.find("bytes follow the last value"), std::string::npos);
  longer = message;
  longer.payload_block.resize(longer.payload_block.size() + 8);
  EXPECT_NE(decode_error<Everything>(longer).text.find("payload follows the last value"), std::string::npos);
}

TEST(Decoder, WhatNoValueClaimsOfThePayloadIsLeftForAttachments) {
  Message message = encode_message(std::string(9'000, 'x'));
  message.payload_block.resize(message.payload_block.size() + 5, std::byte{'a'});
  Decoder decoder(message.body(), message.payload());
  std::string text;
  ASSERT_TRUE(decode(decoder, text));
  EXPECT_TRUE(decoder.finish_body());
  EXPECT_EQ(as_text(decoder.payload_rest()), "aaaaa");
  EXPECT_FALSE(decoder.finish());
}

TEST(Decoder, FlippedBitsFailOrDecodeToSomethingThatEncodes) {
  const Message message = encode_message(Everything());
  for (std::size_t bit = 0; bit < message.body().size() * 8; ++bit) {
    if (bit > 4'000 && bit % 7 != 0) continue;
    Message flipped = message;
    flipped.body_block[bit / 8] ^= std::byte{1} << (bit % 8);
    Decoder decoder(flipped.body(), flipped.payload());
    std::tuple<Everything> value;
    if (decode_all(decoder, value)) {
      encode_message(value);
    } else {
      expect_described(decoder.error());
    }
  }
}

TEST(Decoder, LyingCountsFailBeforeAnythingIsAllocated) {
  // The message announces 0x7fffffff elements and has 6 bytes.
  const Message message = message_of(std::uint32_t{0x7fff'ffff}, std::uint32_t{0}, std::uint16_t{0});
  expect_described(decode_error<std::string>(message));
  expect_described(decode_error<std::string_view>(message));
  expect_described(decode_error<std::vector<std::int64_t>>(message));
  expect_described(decode_error<std::vector<std::string>>(message));
  expect_described(decode_error<std::vector<bool>>(message));
  expect_described(decode_error<std::deque<std::optional<int>>>(message));
  expect_described(decode_error<std::map<int, int>>(message));
  expect_described(decode_error<std::set<std::string>>(message));
  expect_described(decode_error<std::vector<std::vector<std::vector<int>>>>(message));
  expect_described(decode_error<std::vector<Leaf>>(message));
}

TEST(Decoder, LyingOutOfBandCountsFail) {
  const Message message = message_of(std::uint32_t{0xffff'ffff});
  expect_described(decode_error<std::string>(message));
  expect_described(decode_error<std::vector<std::int64_t>>(message));
  EXPECT_EQ(decode_error<std::vector<std::string>>(message).code, ErrorCode::protocol_error);
}

TEST(Decoder, PaddingOfThePayloadMustBeZero) {
  using Two = std::pair<std::string, std::string>;
  Message message = encode_message(Two(std::string(8'193, 'x'), std::string(8'192, 'y')));
  ASSERT_EQ(message.payload().size(), 8'200U + 8'192U);
  message.payload_block[8'195] = std::byte{1};
  EXPECT_NE(decode_error<Two>(message).text.find("padding"), std::string::npos);
}

TEST(Decoder, ElementsWithoutBytesAreBounded) {
  struct Empty {};
  EXPECT_EQ(decode_message<std::vector<Empty>>(message_of(std::uint32_t{1'000})).size(), 1'000U);
  const Error error = decode_error<std::vector<Empty>>(message_of(std::uint32_t{0x7fff'ffff}));
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded);
  // The limit applies to the whole message, not to each sequence.
  using Many = std::vector<std::vector<Empty>>;
  const Message message = encode_message(Many(3, std::vector<Empty>(30'000)));
  EXPECT_EQ(decode_error<Many>(message).code, ErrorCode::limit_exceeded);
  EXPECT_EQ(decode_message<Many>(message, {.empty_elements_max = 90'000}).size(), 3U);
}

struct Chain {
  std::unique_ptr<Chain> next;
};
struct Tree {
  std::vector<Tree> children;
};

TEST(Decoder, DepthBombsFail) {
  const std::vector<std::byte> pointers(100'000, std::byte{1});
  EXPECT_EQ(decode_error<Chain>(make_message(pointers)).code, ErrorCode::limit_exceeded);

  std::vector<std::byte> counts;
  for (int i = 0; i < 100'000; ++i) counts.insert(counts.end(), {std::byte{1}, std::byte{}, std::byte{}, std::byte{}});
  EXPECT_EQ(decode_error<Tree>(make_message(counts)).code, ErrorCode::limit_exceeded);
}

TEST(Decoder, DepthCountsWhatIsNestedOnly) {
  const Message in_a_row = encode_message(std::vector<Tree>(1'000));
  EXPECT_EQ(decode_message<std::vector<Tree>>(in_a_row, {.depth_max = 1}).size(), 1'000U);
  EXPECT_EQ(decode_error<std::vector<Tree>>(in_a_row, {.depth_max = 0}).code, ErrorCode::limit_exceeded);

  // Siblings with elements of their own do not add to the nesting.
  const Message siblings = encode_message(std::vector<std::vector<std::string>>(100, {"a"}));
  EXPECT_EQ(decode_message<std::vector<std::vector<std::string>>>(siblings, {.depth_max = 2}).size(), 100U);
  EXPECT_EQ(decode_message<std::deque<std::deque<std::string>>>(siblings, {.depth_max = 2}).size(), 100U);
  EXPECT_EQ(decode_error<std::vector<std::vector<std::string>>>(siblings, {.depth_max = 1}).code,
            ErrorCode::limit_exceeded);
  using Maps = std::vector<std::map<std::string, int>>;
  EXPECT_EQ(decode_message<Maps>(encode_message(Maps(100, {{"a", 1}})), {.depth_max = 2}).size(), 100U);
  std::vector<std::unique_ptr<std::vector<std::string>>> owners(100);
  for (auto& owner : owners) owner = std::make_unique<std::vector<std::string>>(1, "a");
  using Owners = std::vector<std::unique_ptr<std::vector<std::string>>>;
  EXPECT_EQ(decode_message<Owners>(encode_message(owners), {.depth_max = 3}).size(), 100U);

  std::vector<std::byte> pointers(32, std::byte{1});
  pointers.push_back(std::byte{0});
  EXPECT_NE(decode_message<Chain>(make_message(pointers)).next, nullptr);
  pointers.insert(pointers.begin(), std::byte{1});
  EXPECT_EQ(decode_error<Chain>(make_message(pointers)).code, ErrorCode::limit_exceeded);
}

TEST(Decoder, MemoryIsBounded) {
  const Message message = encode_message(std::vector<std::string>(100, "x"));
  EXPECT_EQ(decode_error<std::vector<std::string>>(message, {.memory_bytes_max = 1'000}).code,
            ErrorCode::limit_exceeded);
}

// A value that needs more than `bytes` of heap memory is refused with a smaller limit and accepted with a sufficient
// one.
template <class T>
void expect_charged(const T& value, std::size_t bytes) {
  const Message message = encode_message(value);
  const Error error = decode_error<T>(message, {.memory_bytes_max = bytes});
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << error.describe();
  EXPECT_NE(error.text.find("memory_bytes_max"), std::string::npos) << error.text;
  decode_message<T>(message, {.memory_bytes_max = 16 * bytes});
}

TEST(Decoder, MemoryIsBoundedForEveryKindOfContainer) {
  std::map<int, int> map;
  std::set<int> set;
  std::unordered_map<int, int> unordered_map;
  std::unordered_multiset<int> unordered_multiset;
  for (int i = 0; i < 100; ++i) {
    map.emplace(i, i);
    set.insert(i);
    unordered_map.emplace(i, i);
    unordered_multiset.insert(1);
  }
  expect_charged(map, 100 * (sizeof(std::pair<int, int>) + 3 * sizeof(void*)));
  expect_charged(set, 100 * (sizeof(int) + 3 * sizeof(void*)));
  expect_charged(unordered_map, 100 * (sizeof(std::pair<int, int>) + 2 * sizeof(void*)));
  expect_charged(unordered_multiset, 100 * (sizeof(int) + 2 * sizeof(void*)));
  expect_charged(std::deque<std::string>(100), 100 * sizeof(std::string));
  expect_charged(std::deque<int>(100), 100 * sizeof(int));
  expect_charged(std::list<std::string>(100), 100 * (sizeof(std::string) + 2 * sizeof(void*)));
  expect_charged(std::list<int>(100), 100 * (sizeof(int) + 2 * sizeof(void*)));
  expect_charged(std::vector<bool>(1'000), 100);
  expect_charged(std::vector<int>(100), 100 * sizeof(int) - 1);
  expect_charged(std::vector<std::string>(100), 100 * sizeof(std::string) - 1);
  expect_charged(std::vector<std::optional<Everything>>(100), 100 * sizeof(std::optional<Everything>) - 1);
  expect_charged(std::string(100, 'x'), 99);
  std::vector<std::unique_ptr<std::array<char, 1'000>>> pointers(10);
  for (auto& pointer : pointers) pointer = std::make_unique<std::array<char, 1'000>>();
  expect_charged(pointers, 10 * 1'000);
  // Even an empty std::deque allocates memory, also inside other types.
  expect_charged(std::vector<std::deque<int>>(100), 100 * 512);
  expect_charged(std::vector<std::pair<int, std::deque<int>>>(100), 100 * 512);
  expect_charged(std::vector<std::optional<std::deque<int>>>(100, std::deque<int>()), 100 * 512);
  // Its first node has room for one element of any size.
  expect_charged(std::vector<std::deque<std::array<char, 10'000>>>(100), 100 * 10'000);
  using Choice = std::variant<int, std::deque<int>>;
  expect_charged(std::vector<Choice>(100, std::deque<int>()), 100 * 512);
}

TEST(Decoder, CopiesForAlignmentAreBounded) {
  using Numbers = std::span<const std::uint64_t>;
  const std::uint64_t number = 7;
  Message message = encode_message(std::vector<Numbers>(100, Numbers(&number, 1)));
  message = make_message(message.body(), {}, 1);
  DecodeArena arena;
  Decoder decoder(message.body(), {}, {.memory_bytes_max = 6'400}, &arena);
  std::tuple<std::vector<Numbers>> value;
  EXPECT_FALSE(decode_all(decoder, value));
  EXPECT_EQ(decoder.error().code, ErrorCode::limit_exceeded);
}

TEST(Decoder, MemoryIsASmallMultipleOfTheMessageByDefault) {
  struct Row {
    std::string a, b, c, d, e, f, g, h, i;
  };
  using Rows = std::vector<std::optional<Row>>;
  static_assert(sizeof(Rows::value_type) > 200);
  // A small number of absent rows is accepted, whatever their size.
  EXPECT_EQ(decode_message<Rows>(encode_message(Rows(1'000))).size(), 1'000U);
  const Error error = decode_error<Rows>(encode_message(Rows(100'000)));
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded);
  const std::size_t allowed = DecodeLimits().memory_bytes(100'004);
  EXPECT_EQ(allowed, 16 * 100'004 + (std::size_t{1} << 20));
  EXPECT_NE(error.text.find("allowed: " + std::to_string(allowed)), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("memory_factor_max"), std::string::npos) << error.text;
  // Messages of honest senders with many small parts stay within the default limits.
  using Texts = std::map<std::string, std::string>;
  Texts texts;
  for (int i = 0; i < 20'000; ++i) texts.emplace(std::to_string(i), "");
  EXPECT_EQ(round_trip(texts), texts);
  using Lists = std::vector<std::vector<std::string>>;
  EXPECT_EQ(round_trip(Lists(50'000, {"x"})).size(), 50'000U);
}

TEST(Decoder, TheMemoryLimitDoesNotOverflow) {
  constexpr std::size_t most = SIZE_MAX;
  EXPECT_EQ((DecodeLimits{.memory_factor_max = most}.memory_bytes(3)), std::size_t{1} << 30);
  EXPECT_EQ((DecodeLimits{.memory_bytes_base = most}.memory_bytes(3)), std::size_t{1} << 30);
  EXPECT_EQ((DecodeLimits{.memory_factor_max = 0, .memory_bytes_base = 5}.memory_bytes(3)), 5U);
}

struct Account final : DecodeBudget {
  explicit Account(std::size_t bytes) : left(bytes) {}
  bool acquire(std::size_t bytes) noexcept override {
    if (bytes > left) return false;
    left -= bytes;
    acquired += bytes;
    return true;
  }
  std::size_t left;
  std::size_t acquired = 0;
};

TEST(Decoder, ABudgetPaysBeforeMemoryIsTaken) {
  const Message small = encode_message(std::vector<int>(500));
  const Message large = encode_message(std::vector<std::string>(10'000));
  Account account(std::size_t{1} << 20);
  std::tuple<std::vector<int>> few;
  Decoder first(small.body(), small.payload(), {}, nullptr, &account);
  EXPECT_TRUE(decode_all(first, few));
  EXPECT_EQ(account.acquired, 0U);

  std::tuple<std::vector<std::string>> many;
  Decoder second(large.body(), large.payload(), {}, nullptr, &account);
  EXPECT_TRUE(decode_all(second, many));
  EXPECT_GE(account.acquired + DecodeBudget::free_bytes, 10'000 * sizeof(std::string));
  EXPECT_LE(account.acquired, 10'000 * sizeof(std::string) + DecodeBudget::step_bytes);

  Account poor(100'000);
  Decoder third(large.body(), large.payload(), {}, nullptr, &poor);
  EXPECT_FALSE(decode_all(third, many));
  EXPECT_EQ(third.error().code, ErrorCode::overloaded);
  EXPECT_EQ(poor.acquired, 0U);

  // The decode limits apply also when the budget has more memory.
  Account rich(SIZE_MAX);
  Decoder fourth(large.body(), large.payload(), {.memory_bytes_max = 100'000}, nullptr, &rich);
  EXPECT_FALSE(decode_all(fourth, many));
  EXPECT_EQ(fourth.error().code, ErrorCode::limit_exceeded);
  EXPECT_EQ(rich.acquired, 0U);
}

// Returns the smallest memory_bytes_max with which the message is decoded.
template <class T>
std::size_t least_limit(const Message& message, DecodeBudget* budget) {
  std::size_t refused = 0;
  std::size_t accepted = std::size_t{1} << 30;
  while (accepted - refused > 1) {
    const std::size_t limit = refused + (accepted - refused) / 2;
    Decoder decoder(message.body(), message.payload(), {.memory_bytes_max = limit}, nullptr, budget);
    std::tuple<T> value;
    (decode_all(decoder, value) ? accepted : refused) = limit;
  }
  return accepted;
}

TEST(Decoder, ABudgetDoesNotChangeTheLimit) {
  using Texts = std::vector<std::string>;
  const Message message = encode_message(Texts(2'000));
  ASSERT_GT(2'000 * sizeof(std::string), DecodeBudget::free_bytes) << "the budget is asked";
  Account rich(SIZE_MAX);
  EXPECT_EQ(least_limit<Texts>(message, &rich), least_limit<Texts>(message, nullptr));
}

// ---- Keys that were chosen to collide ----

// Returns keys that fall into one bucket of the table that is made for `count` keys.
std::vector<std::uint64_t> colliding_keys(std::size_t count) {
  std::unordered_map<std::uint64_t, int> table;
  table.reserve(count);
  std::vector<std::uint64_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = i * table.bucket_count();
  return keys;
}

void expect_flood(const Error& error, const char* what) {
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded) << error.describe();
  EXPECT_NE(error.text.find(std::string("can't decode ") + what), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("bucket_passes_max"), std::string::npos) << error.text;
}

TEST(Decoder, KeysChosenToCollideAreRefused) {
  const std::vector<std::uint64_t> keys = colliding_keys(5'000);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> entries;
  for (const std::uint64_t key : keys) entries.emplace_back(key, 0);
  const Message set = encode_message(std::deque(keys.begin(), keys.end()));  // Sets travel in the body.
  const Message map = encode_message(entries);
  expect_flood(decode_error<std::unordered_set<std::uint64_t>>(set), "set");
  expect_flood(decode_error<std::unordered_multiset<std::uint64_t>>(set), "set");
  expect_flood((decode_error<std::unordered_map<std::uint64_t, std::uint64_t>>(map)), "map");
  expect_flood((decode_error<std::unordered_multimap<std::uint64_t, std::uint64_t>>(map)), "map");
  EXPECT_EQ((decode_message<std::unordered_set<std::uint64_t>>(set, {.bucket_passes_max = 5'000}).size()), 5'000U);
  // Trees have no collisions.
  EXPECT_EQ(decode_message<std::set<std::uint64_t>>(set).size(), 5'000U);
}

// The keys alternate between two values of one bucket: each insertion of one key passes all entries of the other.
TEST(Decoder, EqualKeysInTurnAreRefused) {
  const std::vector<std::uint64_t> two = colliding_keys(5'000);
  std::deque<std::uint64_t> keys(5'000);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = two[i % 2];
  expect_flood(decode_error<std::unordered_multiset<std::uint64_t>>(encode_message(keys)), "set");
}

TEST(Decoder, FewCollisionsAndManyEqualKeysAreNoAttack) {
  const std::vector<std::uint64_t> keys = colliding_keys(50);
  EXPECT_EQ(decode_message<std::unordered_set<std::uint64_t>>(encode_message(keys)).size(), 50U);

  std::unordered_multimap<std::string, int> groups;
  for (int i = 0; i < 3'000; ++i) groups.emplace(i < 2'000 ? "large" : std::to_string(i % 7), i);
  EXPECT_EQ(round_trip(groups), groups);

  std::unordered_set<std::string> texts;
  std::unordered_map<std::uint64_t, std::uint64_t> strided;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    texts.insert("key " + std::to_string(i));
    strided.emplace(i << 20, i);
  }
  EXPECT_EQ(round_trip(texts), texts);
  EXPECT_EQ(round_trip(strided), strided);
}

TEST(Decoder, ValuesOutsideTheirRangeFail) {
  EXPECT_EQ(decode_error<bool>(message_of('\2')).text, "can't decode bool at byte 1: neither 0 nor 1");
  expect_described(decode_error<std::optional<int>>(message_of('\2', 5)));
  expect_described(decode_error<std::unique_ptr<int>>(message_of('\2', 5)));
  expect_described(decode_error<std::variant<int, char>>(message_of('\2', 5)));
  expect_described(decode_error<std::variant<int, char>>(message_of('\xff', 5)));
}

TEST(Decoder, RepeatedKeysFail) {
  EXPECT_NE((decode_error<std::map<int, int>>(message_of(2, 1, 5, 1, 6)).text.find("a key comes twice")),
            std::string::npos);
  expect_described(decode_error<std::set<int>>(message_of(2, 1, 1)));
}

TEST(Decoder, TheFirstErrorIsReported) {
  Decoder decoder({});
  EXPECT_FALSE(decoder.fail("map", "the first reason"));
  EXPECT_FALSE(decoder.fail_limit("set", "another reason"));
  EXPECT_EQ(decoder.error().code, ErrorCode::protocol_error);
  EXPECT_EQ(decoder.error().text, "can't decode map at byte 0: the first reason");
}

TEST(Decoder, ErrorsSayWhatWhereAndHowMuch) {
  EXPECT_EQ(decode_error<std::string>(message_of(10, 'a')).text,
            "can't decode sequence at byte 4: the body has fewer bytes than announced (10)");
}

}  // namespace
}  // namespace hawser::codec
