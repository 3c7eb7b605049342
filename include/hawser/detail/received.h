#pragma once

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/metadata.h"

namespace hawser {

namespace detail {

template <auto F>
struct ReplyOutcome;

// A received reply. The views refer to the received message.
struct Received {
  Bytes body;
  Bytes payload;
  Bytes attachment;
  MetadataView metadata;
  Block* head_block = nullptr;     // Null: the memory is reused, and must be copied to last.
  Block* payload_block = nullptr;  // Likewise. Null also for a payload in the caller's memory.
  const codec::DecodeLimits* decode_limits = &codec::default_decode_limits;
};

// Owns the memory that the views of a Reply refer to.
struct ReplyStorage {
  Buffer head;
  Buffer payload;
  codec::DecodeArena arena;
};

// Changes the views of `reply` so that they stay valid as long as `storage` and `memory`. Short replies are copied,
// because the receive block is much larger. `memory` is the memory that the caller provided for the payload; a small
// payload that was not received there is copied to it. False if the payload does not fit.
bool keep_reply(Received& reply, MutableBytes memory, ReplyStorage& storage);

struct NoValue {};

// The type in which a result is read in place: owners of contiguous memory become views of the message.
template <class T>
struct InPlace {
  using type = T;
};
template <>
struct InPlace<std::string> {
  using type = std::string_view;
};
template <class E>
  requires((std::is_arithmetic_v<E> && !std::is_same_v<E, bool>) || std::is_enum_v<E>)
struct InPlace<std::vector<E>> {
  using type = std::span<const E>;
};

}  // namespace detail

}  // namespace hawser
