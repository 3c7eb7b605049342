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

// A reply as the session hands it over; views into the received message.
struct Received {
  Bytes body;
  Bytes payload;
  Bytes attachment;
  MetadataView metadata;
  Block* head_block = nullptr;     // Null, as for the payload: the memory is reused, what lasts is copied.
  Block* payload_block = nullptr;  // Null also for a payload that lies in the caller's memory.
  const codec::DecodeLimits* decode_limits = &codec::default_decode_limits;
};

// Keeps what a Reply's views point to.
struct ReplyStorage {
  Buffer head;
  Buffer payload;
  codec::DecodeArena arena;
};

// A received reply that lasts: short ones are copied, since the receive block is much larger. `memory` is where the
// caller wants the payload; small payloads that were not received there are copied to it. False if they do not fit.
bool keep_reply(const Received& from, MutableBytes memory, ReplyStorage& storage, Received& kept);

struct NoValue {};

// How a result is read in place: owners of contiguous memory as views of the message.
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
