#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/codec/aggregate.h"
#include "hawser/codec/containers.h"
#include "hawser/codec/decoder.h"
#include "hawser/codec/encoder.h"
#include "hawser/codec/sequences.h"
#include "hawser/codec/signature.h"
#include "hawser/codec/views.h"

// Values to bytes and back. A message is a contiguous body followed by a payload, in which large sequences travel
// uncopied; docs/wire-format.md has the layout. A value is encoded in two passes: encoded_size() tells what it takes,
// encode() writes it into room for just that.
//
//   const codec::EncodedSize size = codec::encoded_size(text, numbers);
//   if (size.too_large) ...                       // ErrorCode::limit_exceeded
//   codec::Encoder encoder(body, pieces);         // Room for size.body bytes and size.pieces pieces.
//   codec::encode(encoder, text, numbers);
//
//   codec::Decoder decoder(body, payload, limits, &arena);
//   std::tuple<std::string_view, std::vector<int>> values;
//   if (!codec::decode_all(decoder, values)) return std::unexpected(decoder.error());
namespace hawser::codec {

// For Codec<T>::size of a user's type: adds the encodings of `values` up.
template <class... T>
void measure(Sizer& sizer, const T&... values) {
  static_assert((!std::is_array_v<T> && ...), "hawser: pass a std::string_view or std::span of the array");
  (measure_one(sizer, values), ...);
}

// What `values` take together.
template <class... T>
[[nodiscard]] EncodedSize encoded_size(const T&... values) {
  Sizer sizer;
  measure(sizer, values...);
  return sizer.size();
}

// Writes `values` one after another. Their encoded_size() wasn't too large, and they haven't changed since.
template <class... T>
void encode(Encoder& encoder, const T&... values) {
  static_assert((!std::is_array_v<T> && ...), "hawser: pass a std::string_view or std::span of the array");
  (encode_one(encoder, values), ...);
}

// Reads into default-constructed `values`. False: decoder.error() tells why, and the values are unspecified.
template <class... T>
[[nodiscard]] bool decode(Decoder& decoder, T&... values) {
  return (decode_one(decoder, values) && ...);
}

// The same, and nothing may be left over of body and payload.
template <class... T>
[[nodiscard]] bool decode_all(Decoder& decoder, std::tuple<T...>& values) {
  return std::apply([&](T&... value) { return decode(decoder, value...); }, values) && decoder.finish();
}

}  // namespace hawser::codec
