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

// Encodes values to bytes and decodes them. A message is a contiguous body followed by a payload, which carries large
// sequences without a copy. docs/wire-format.md describes the layout. A value is encoded in two passes: encoded_size()
// computes the size, and encode_all() writes into memory of exactly that size.
//
//   const codec::EncodedSize size = codec::encoded_size(text, numbers);
//   if (size.too_large) ...                       // ErrorCode::limit_exceeded
//   codec::Encoder encoder(body, pieces);         // Room for size.body bytes and size.pieces pieces.
//   codec::encode_all(encoder, text, numbers);
//
//   codec::Decoder decoder(body, payload, limits, &arena);
//   std::tuple<std::string_view, std::vector<int>> values;
//   if (!codec::decode_all(decoder, values)) return std::unexpected(decoder.error());
namespace hawser::codec {

// Adds the encoded sizes of `values` to `sizer`. For Codec<T>::size of a user's type.
template <class... T>
void measure(Sizer& sizer, const T&... values) {
  static_assert((!std::is_array_v<T> && ...), "hawser: pass a std::string_view or std::span of the array");
  (measure_one(sizer, values), ...);
}

// True if `T` is one type whose encoding is the body of the message.
template <class... T>
concept SoleMessage = sizeof...(T) == 1 && (is_whole_message<T> && ...);

// Size of a message of `values`. If too_large is set, they cannot be encoded.
template <class... T>
[[nodiscard]] EncodedSize encoded_size(const T&... values) {
  Sizer sizer;
  if constexpr (SoleMessage<T...>) {
    (Codec<T>::size_whole(sizer, values), ...);
  } else {
    measure(sizer, values...);
  }
  return sizer.size();
}

// Writes `values` one after another, as parts of a message. For Codec<T>::encode of a user's type.
template <class... T>
void encode(Encoder& encoder, const T&... values) {
  static_assert((!std::is_array_v<T> && ...), "hawser: pass a std::string_view or std::span of the array");
  (encode_one(encoder, values), ...);
}

// Writes a message of `values`. Their encoded_size() was not too large, and they have not changed since.
template <class... T>
void encode_all(Encoder& encoder, const T&... values) {
  if constexpr (SoleMessage<T...>) {
    (Codec<T>::encode_whole(encoder, values), ...);
  } else {
    encode(encoder, values...);
  }
}

// Decodes into default-constructed `values`. On false, decoder.error() gives the reason and the values are unspecified.
template <class... T>
[[nodiscard]] bool decode(Decoder& decoder, T&... values) {
  return (decode_one(decoder, values) && ...);
}

// Decodes a message of `values`, and fails if bytes of the body or the payload are left.
template <class... T>
[[nodiscard]] bool decode_all(Decoder& decoder, std::tuple<T...>& values) {
  if constexpr (SoleMessage<T...>) {
    return (Codec<T>::decode_whole(decoder, std::get<T>(values)) && ...) && decoder.finish();
  } else {
    return std::apply([&](T&... value) { return decode(decoder, value...); }, values) && decoder.finish();
  }
}

}  // namespace hawser::codec
