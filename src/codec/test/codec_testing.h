#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hawser/codec.h"

namespace hawser::codec {

// A message as it would be received. Each part lies in a heap block of exactly its size, so that a sanitizer reports
// each read beyond its end. The payload is aligned to 8 bytes; the body is shifted by `body_shift`.
struct Message {
  std::vector<std::byte> body_block;
  std::vector<std::byte> payload_block;
  std::size_t body_shift = 0;

  Bytes body() const { return Bytes(body_block).subspan(body_shift); }
  Bytes payload() const { return payload_block; }

  friend bool operator==(const Message&, const Message&) = default;
};

inline Message make_message(Bytes body, Bytes payload = {}, std::size_t body_shift = 0) {
  Message message{{}, {payload.begin(), payload.end()}, body_shift};
  message.body_block.reserve(body_shift + body.size());
  message.body_block.resize(body_shift);
  message.body_block.insert(message.body_block.end(), body.begin(), body.end());
  return message;
}

// Encodes `values`. Throws if the two passes disagree about the size.
template <class... T>
Message encode_message(const T&... values) {
  const EncodedSize size = encoded_size(values...);
  if (size.too_large) throw std::string("too large");
  std::vector<std::byte> body(size.body);
  std::vector<ConstBuffer> pieces(size.pieces);
  Encoder encoder(body.data(), pieces.data());
  encode(encoder, values...);
  if (encoder.position() != body.data() + body.size()) throw std::string("the body's size is wrong");
  if (encoder.pieces_end() != pieces.data() + pieces.size()) throw std::string("the number of pieces is wrong");
  std::vector<std::byte> payload;
  for (const ConstBuffer& piece : pieces) payload.insert(payload.end(), piece.data, piece.data + piece.size);
  if (payload.size() != size.payload) throw std::string("the payload's size is wrong");
  return make_message(body, payload);
}

// Decodes the single value of `message`, which must outlive the value if it has views. Throws the error's text.
template <class T>
T decode_message(const Message& message, const DecodeLimits& limits = {}, DecodeArena* arena = nullptr) {
  Decoder decoder(message.body(), message.payload(), limits, arena);
  std::tuple<T> value;
  if (!decode_all(decoder, value)) throw decoder.error().describe();
  return std::get<0>(std::move(value));
}

// Returns the error of decoding `message` as a T. Throws if decoding succeeds.
template <class T>
Error decode_error(const Message& message, const DecodeLimits& limits = {}) {
  Decoder decoder(message.body(), message.payload(), limits);
  std::tuple<T> value;
  if (decode_all(decoder, value)) throw std::string("decoded without an error");
  return decoder.error();
}

template <class T>
T round_trip(const T& value) {
  return decode_message<T>(encode_message(value));
}

// Encodes numbers one after another, little-endian.
template <class... T>
Message message_of(T... numbers) {
  std::vector<std::byte> body(sizeof...(T) == 0 ? 0 : (sizeof(T) + ... + 0));
  std::byte* to = body.data();
  ((std::memcpy(to, &numbers, sizeof(T)), to += sizeof(T)), ...);
  return make_message(body);
}

}  // namespace hawser::codec
