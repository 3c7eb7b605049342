#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "hawser/codec.h"

// Decodes arbitrary bytes as several types. A decoded value must be encoded to bytes that decode and encode to the same
// bytes again. Input: u8 type | u8 shift of the body's address in bits 0 to 2 | u16 body bytes | body | payload.
namespace hawser::codec {
namespace {

struct Point {
  std::int16_t x, y;
};
struct Empty {};
struct Tree {
  std::uint8_t tag;
  std::vector<Tree> children;
  std::unique_ptr<Tree> next;
};
struct Small {
  static constexpr std::size_t hawser_base_fields = 1;
  std::string text;
};
struct Grown {
  static constexpr std::size_t hawser_base_fields = 1;
  std::string text;
  std::optional<std::vector<Point>> points;
  std::vector<Small> smalls;
};
struct Record {
  bool flag;
  char letter;
  double number;
  std::string text;
  std::vector<Point> points;
  std::vector<Empty> empties;
  std::optional<std::vector<std::string>> maybe;
  std::variant<std::monostate, std::int64_t, std::string, std::vector<bool>> choice;
  std::map<std::string, std::vector<std::uint16_t>> map;
  std::set<std::uint8_t> set;
  std::array<std::pair<char, bool>, 2> pairs;
  std::chrono::seconds time;
  std::deque<std::uint32_t> deque;
};

void expect(bool condition) {
  if (!condition) std::abort();
}

struct Message {
  std::vector<std::byte> body;
  std::vector<std::byte> payload;
  friend bool operator==(const Message&, const Message&) = default;
};

template <class T>
Message encode_message(const T& value) {
  const EncodedSize size = encoded_size(value);
  expect(!size.too_large);
  Message message{std::vector<std::byte>(size.body), {}};
  std::vector<ConstBuffer> pieces(size.pieces);
  Encoder encoder(message.body.data(), pieces.data());
  encode(encoder, value);
  expect(encoder.position() == message.body.data() + size.body && encoder.pieces_end() == pieces.data() + size.pieces);
  for (const ConstBuffer& piece : pieces)
    message.payload.insert(message.payload.end(), piece.data, piece.data + piece.size);
  expect(message.payload.size() == size.payload);
  return message;
}

template <class T>
void check(Bytes body, Bytes payload) {
  DecodeArena arena;
  Decoder decoder(body, payload, {.memory_bytes_max = 256 << 20}, &arena);
  std::tuple<T> value;
  if (!decode_all(decoder, value)) {
    expect(!decoder.error().text.empty() && decoder.error().initiator == Initiator::peer);
    return;
  }
  const Message first = encode_message(std::get<0>(value));
  DecodeArena second_arena;
  // The limit counts skipped bytes of the first message, which are not encoded again.
  const DecodeLimits enough{.memory_factor_max = SIZE_MAX, .bucket_passes_max = 1 << 20};
  Decoder second_decoder(first.body, first.payload, enough, &second_arena);
  std::tuple<T> copy;
  expect(decode_all(second_decoder, copy));
  expect(encode_message(std::get<0>(copy)) == first);
}

using Check = void (*)(Bytes, Bytes);
constexpr Check checks[] = {
    check<std::string_view>,
    check<std::span<const std::uint64_t>>,
    check<std::vector<std::vector<std::string>>>,
    check<Record>,
    check<Tree>,
    check<std::vector<Small>>,
    check<std::vector<Grown>>,
    check<std::tuple<bool, std::span<const Point>, std::string_view, std::vector<std::int64_t>>>,
    check<std::map<std::uint16_t, std::variant<Empty, Tree, Grown>>>,
    check<std::vector<Empty>>,
};

}  // namespace
}  // namespace hawser::codec

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hawser::Bytes;
  if (size < 4) return 0;
  const std::size_t type = data[0] % std::size(hawser::codec::checks);
  const std::size_t shift = data[1] % 8;
  const Bytes rest = std::as_bytes(std::span(data + 4, size - 4));
  const std::size_t body_bytes = std::min<std::size_t>(rest.size(), data[2] | data[3] << 8);
  // Separate blocks, so that a read beyond either is detected.
  std::vector<std::byte> body;
  body.reserve(shift + body_bytes);
  body.resize(shift);
  body.insert(body.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(body_bytes));
  const std::vector<std::byte> payload(rest.begin() + static_cast<std::ptrdiff_t>(body_bytes), rest.end());
  hawser::codec::checks[type](Bytes(body).subspan(shift), payload);
  return 0;
}
