#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "codec/test/codec_testing.h"

// Encodes and decodes random values of many types from a fixed seed: decoding restores each value, and damaged messages
// do no harm.
namespace hawser::codec {
namespace {

constexpr std::uint64_t seed = 20'240'229;

class Source {
 public:
  explicit Source(std::uint64_t start) : engine_(start) {}
  std::uint64_t bits() { return engine_(); }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(bits() % limit); }
  // Lengths are mostly short, and sometimes long enough for the bytes to travel out of band.
  std::size_t length(std::size_t element_bytes) {
    const std::size_t kind = below(16);
    if (kind == 0) return (out_of_band_bytes_min - 16 + below(32)) / element_bytes + 1;
    return kind < 4 ? 0 : below(9);
  }

 private:
  std::mt19937_64 engine_;
};

template <class T>
T random_value(Source& source);

template <class T>
T random_sequence(Source& source) {
  using Element = typename T::value_type;
  T value(is_block<Element> ? source.length(sizeof(Element)) : source.below(6), Element());
  for (auto place = value.begin(); place != value.end(); ++place) *place = random_value<Element>(source);
  return value;
}

template <class T>
T random_variant(Source& source) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    T value;
    const std::size_t index = source.below(sizeof...(i));
    static_cast<void>(
        ((index == i && (value.template emplace<i>(random_value<std::variant_alternative_t<i, T>>(source)), true)) ||
         ...));
    return value;
  }(std::make_index_sequence<std::variant_size_v<T>>());
}

template <class T>
T random_value(Source& source) {
  constexpr TypeKind kind = kind_of<T>;
  if constexpr (kind == TypeKind::boolean) {
    return source.below(2) == 1;
  } else if constexpr (kind == TypeKind::scalar) {
    return static_cast<T>(source.bits());
  } else if constexpr (kind == TypeKind::contiguous || kind == TypeKind::growable) {
    return random_sequence<T>(source);
  } else if constexpr (kind == TypeKind::set || kind == TypeKind::map) {
    T value;
    for (std::size_t left = source.below(6); left > 0; --left) {
      value.insert(random_value<typename AssociativeEntry<T>::type>(source));
    }
    return value;
  } else if constexpr (kind == TypeKind::optional || kind == TypeKind::pointer) {
    T value;
    if constexpr (kind == TypeKind::optional) {
      if (source.below(2) == 1) value = random_value<typename T::value_type>(source);
    } else {
      if (source.below(3) == 1)
        value = std::make_unique<typename T::element_type>(random_value<typename T::element_type>(source));
    }
    return value;
  } else if constexpr (kind == TypeKind::variant) {
    return random_variant<T>(source);
  } else if constexpr (kind == TypeKind::duration) {
    return T(random_value<typename T::rep>(source));
  } else {
    T value{};
    const auto fill = [&](auto&... part) { ((part = random_value<std::remove_cvref_t<decltype(part)>>(source)), ...); };
    if constexpr (kind == TypeKind::aggregate) {
      std::apply(fill, fields_of(value));
    } else {
      std::apply(fill, value);
    }
    return value;
  }
}

enum class Level : std::uint8_t { low, high };
struct Empty {};
struct Point {
  std::int16_t x, y;
};
struct Record {
  bool flag;
  Level level;
  double number;
  std::string text;
  std::vector<Point> points;
  std::optional<std::vector<std::string>> maybe;
  std::variant<std::monostate, std::int64_t, std::string> choice;
  std::map<std::string, std::vector<bool>> map;
  std::map<std::uint32_t, Empty> table;
  std::set<std::uint16_t> set;
  std::array<std::pair<char, std::uint32_t>, 2> pairs;
  std::chrono::nanoseconds time;
  std::deque<std::u16string> texts;
};
struct Growing {
  static constexpr std::size_t hawser_base_fields = 2;
  std::vector<std::uint8_t> base;
  std::uint16_t number;
  std::vector<Record> appended;
  std::optional<std::string> more;
};
struct Tree {
  std::string text;
  std::unique_ptr<Tree> left;
  std::unique_ptr<Tree> right;
};

template <class T>
class Property : public testing::Test {};
using Types = testing::Types<std::uint32_t, std::string, std::vector<std::int64_t>, std::vector<std::string>,
                             std::tuple<bool, std::vector<std::vector<Point>>, std::string>, Record,
                             std::vector<Record>, Growing, std::vector<Growing>, Tree>;
TYPED_TEST_SUITE(Property, Types);

TYPED_TEST(Property, WhatIsEncodedComesBack) {
  Source source(seed);
  for (int round = 0; round < 200; ++round) {
    const TypeParam value = random_value<TypeParam>(source);
    const Message message = encode_message(value);
    // Equal encodings mean equal values: the encoding contains all fields, and each of these types has a fixed order of
    // elements.
    EXPECT_EQ(encode_message(decode_message<TypeParam>(message)), message);
  }
}

TYPED_TEST(Property, DamagedMessagesFailOrDecodeToSomethingThatEncodes) {
  Source source(seed + 1);
  for (int round = 0; round < 400; ++round) {
    Message message = encode_message(random_value<TypeParam>(source));
    for (std::size_t left = 1 + source.below(3); left > 0 && !message.body_block.empty(); --left) {
      message.body_block[source.below(message.body_block.size())] = static_cast<std::byte>(source.bits());
    }
    if (source.below(4) == 0) message.body_block.resize(source.below(message.body_block.size() + 1));
    Decoder decoder(message.body(), message.payload());
    std::tuple<TypeParam> value;
    if (decode_all(decoder, value)) {
      decode_message<TypeParam>(encode_message(std::get<0>(value)));
    } else {
      EXPECT_FALSE(decoder.error().text.empty());
    }
  }
}

}  // namespace
}  // namespace hawser::codec
