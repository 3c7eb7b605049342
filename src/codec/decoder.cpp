#include "hawser/codec/decoder.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "hawser/codec/encoder.h"

namespace hawser::codec {

// The copied bytes follow this header.
struct alignas(DecodeArena::alignment) DecodeArena::Chunk {
  Chunk* older = nullptr;
};

const std::byte* DecodeArena::copy(Bytes bytes) {
  void* memory = ::operator new(sizeof(Chunk) + bytes.size(), std::align_val_t(alignof(Chunk)));
  newest_ = new (memory) Chunk{newest_};
  auto* data = reinterpret_cast<std::byte*>(newest_ + 1);
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  return data;
}

void DecodeArena::release() noexcept {
  while (newest_ != nullptr) {
    ::operator delete(std::exchange(newest_, newest_->older), std::align_val_t(alignof(Chunk)));
  }
}

bool Decoder::take_empty_elements(std::size_t count, const char* what) noexcept {
  if (count > empty_elements_left_) {
    return fail(ErrorCode::limit_exceeded, what, "too many elements that take no bytes (empty_elements_max)", count);
  }
  empty_elements_left_ -= count;
  return true;
}

// Requests memory from the account in steps, so that few virtual calls are made.
bool Decoder::charge_more(std::size_t bytes, const char* what) noexcept {
  const std::size_t lacking = bytes - memory_bytes_left_;
  if (lacking > memory_bytes_unpaid_) {
    limit_ = memory_bytes_left_ + memory_bytes_unpaid_;
    return fail(ErrorCode::limit_exceeded, what,
                "needs more memory than is left for this message: raise memory_factor_max, memory_bytes_base or "
                "memory_bytes_max of DecodeLimits, or send less",
                bytes);
  }
  const std::size_t step = std::min(std::max(lacking, DecodeBudget::step_bytes), memory_bytes_unpaid_);
  if (!budget_->acquire(step)) {
    return fail(ErrorCode::overloaded, what,
                "the memory that received requests may take is used up: send less at once, or raise receive_bytes_max",
                bytes);
  }
  memory_bytes_unpaid_ -= step;
  memory_bytes_left_ = memory_bytes_left_ + step - bytes;
  return true;
}

bool Decoder::fail_passes(std::size_t passed, std::size_t inserted, const char* what) noexcept {
  limit_ = bucket_passes_max_ * inserted;
  return fail(ErrorCode::limit_exceeded, what,
              "its keys fall into few buckets, as keys do that were chosen to block the receiver (bucket_passes_max of "
              "DecodeLimits, entries passed on average by an insertion)",
              passed);
}

bool Decoder::take_payload(std::size_t bytes, const std::byte*& data, const char* what) noexcept {
  if (!payload_allowed_) return fail(what, "an appended field must not travel out of band");
  const std::size_t padding = -static_cast<std::size_t>(payload_ - payload_begin_) % payload_alignment;
  const auto left = static_cast<std::size_t>(payload_end_ - payload_);
  if (bytes > left || padding > left - bytes) {
    return fail(ErrorCode::protocol_error, what, "the payload has fewer bytes than announced", bytes);
  }
  for (std::size_t i = 0; i < padding; ++i) {
    if (*payload_++ != std::byte{0}) return fail(what, "the padding in the payload isn't zero");
  }
  data = payload_;
  payload_ += bytes;
  return true;
}

bool Decoder::align_by_copy(const std::byte*& data, std::size_t bytes, const char* what) {
  if (arena_ == nullptr) {
    return fail(ErrorCode::internal, what, "misaligned, and the decoder was given no arena to copy it to", bytes);
  }
  // The charge includes the chunk's header and the rounding of the arena's allocation.
  if (!charge(bytes + 2 * DecodeArena::alignment, what)) return false;
  data = arena_->copy({data, bytes});
  return true;
}

void Decoder::note(ErrorCode code, const char* what, const char* reason, std::size_t announced) noexcept {
  if (code_ != ErrorCode::ok) return;
  code_ = code;
  what_ = what;
  reason_ = reason;
  offset_ = static_cast<std::size_t>(cursor_ - begin_);
  announced_ = announced;
}

Error Decoder::error() const {
  if (code_ == ErrorCode::ok) return Error::of_call(ErrorCode::internal, "nothing failed");
  std::string text = std::string("can't decode ") + what_ + " at byte " + std::to_string(offset_) + ": " + reason_;
  if (announced_ != 0) {
    text += " (" + std::to_string(announced_);
    if (limit_ != 0) text += ", allowed: " + std::to_string(limit_);
    text += ")";
  }
  const Initiator initiator = code_ == ErrorCode::internal ? Initiator::local : Initiator::peer;
  return Error::of_call(initiator, code_, std::move(text));
}

}  // namespace hawser::codec
