// Encoding and decoding of values as in a call: into memory of the size that was computed, and from a received message.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "hawser/codec.h"

namespace hawser::bench {

struct Order {
  std::uint64_t id = 7;
  std::uint32_t amount = 3;
  double price = 1.5;
  bool urgent = true;
};

namespace {

constexpr std::size_t pieces_max = 8;

template <class T>
T sample();
template <>
Order sample() {
  return {};
}
template <>
std::vector<std::string> sample() {
  return std::vector<std::string>(16, std::string(24, 's'));
}
template <>
std::vector<std::uint64_t> sample() {
  return std::vector<std::uint64_t>(512, 9);
}
template <>
std::string_view sample() {
  static const std::string text(128, 'x');
  return text;
}

// Large enough for the payload, so that neither side copies it.
struct LargeView {
  std::string_view text;
};
template <>
LargeView sample() {
  static const std::string text(256 << 10, 'x');
  return {text};
}

struct Encoded {
  std::vector<std::byte> body;
  std::vector<std::byte> payload;
};

template <class T>
Encoded encoded(const T& value) {
  const codec::EncodedSize size = codec::encoded_size(value);
  Encoded result{std::vector<std::byte>(size.body), {}};
  std::array<ConstBuffer, pieces_max> pieces;
  codec::Encoder encoder(result.body.data(), pieces.data());
  codec::encode(encoder, value);
  for (const ConstBuffer* piece = pieces.data(); piece != encoder.pieces_end(); ++piece) {
    result.payload.insert(result.payload.end(), piece->data, piece->data + piece->size);
  }
  return result;
}

template <class T>
void encode(benchmark::State& state) {
  const T value = sample<T>();
  std::vector<std::byte> body(codec::encoded_size(value).body);
  std::array<ConstBuffer, pieces_max> pieces;
  for (auto _ : state) {
    const codec::EncodedSize size = codec::encoded_size(value);
    codec::Encoder encoder(body.data(), pieces.data());
    codec::encode(encoder, value);
    benchmark::DoNotOptimize(size);
    benchmark::DoNotOptimize(body.data());
    benchmark::DoNotOptimize(pieces);
    benchmark::ClobberMemory();
  }
}

template <class T>
void decode(benchmark::State& state) {
  const Encoded message = encoded(sample<T>());
  std::tuple<T> value;
  for (auto _ : state) {
    codec::Decoder decoder(message.body, message.payload);
    if (!codec::decode_all(decoder, value)) {
      state.SkipWithError(decoder.error().describe().c_str());
      break;
    }
    benchmark::DoNotOptimize(value);
  }
}

BENCHMARK(encode<Order>)->Name("codec/encode/small_struct");
BENCHMARK(decode<Order>)->Name("codec/decode/small_struct");
BENCHMARK(encode<std::string_view>)->Name("codec/encode/view_128B");
BENCHMARK(decode<std::string_view>)->Name("codec/decode/view_128B");
BENCHMARK(encode<std::vector<std::string>>)->Name("codec/encode/16_strings_24B");
BENCHMARK(decode<std::vector<std::string>>)->Name("codec/decode/16_strings_24B");
BENCHMARK(encode<std::vector<std::uint64_t>>)->Name("codec/encode/vector_512_u64");
BENCHMARK(decode<std::vector<std::uint64_t>>)->Name("codec/decode/vector_512_u64");
BENCHMARK(encode<LargeView>)->Name("codec/encode/view_256K");
BENCHMARK(decode<LargeView>)->Name("codec/decode/view_256K");

}  // namespace
}  // namespace hawser::bench
