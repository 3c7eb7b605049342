#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::codec {

// Limits of the memory and time that decoding one message may take.
struct DecodeLimits {
  std::size_t depth_max = 32;                  // Nesting of containers and pointers.
  std::size_t empty_elements_max = 64 * 1024;  // Elements that take no byte on the wire, in the whole message.
  // Heap memory for the elements of one message: memory_bytes_base plus memory_factor_max bytes for each byte of the
  // message, at most memory_bytes_max. Elements of 0 to 4 bytes on the wire may take hundreds of bytes in memory
  // (std::vector<std::optional<Row>>), so the length of the message is not a sufficient limit.
  std::size_t memory_factor_max = 16;
  std::size_t memory_bytes_base = std::size_t{1} << 20;
  std::size_t memory_bytes_max = std::size_t{1} << 30;
  // Entries that an insertion into a std::unordered_* container compares in its bucket, on average over the insertions
  // so far. With a good hash it is less than one. Keys that a peer chose to collide are compared with all earlier ones.
  std::size_t bucket_passes_max = 32;
  // Nesting of the messages within a whole-message type, such as a protobuf message.
  std::size_t message_depth_max = 100;

  // Limit of the heap memory, for a message of `message_bytes` in body and payload.
  constexpr std::size_t memory_bytes(std::size_t message_bytes) const noexcept {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(message_bytes, memory_factor_max, &bytes) ||
        __builtin_add_overflow(bytes, memory_bytes_base, &bytes) || bytes > memory_bytes_max) {
      return memory_bytes_max;
    }
    return bytes;
  }
};

inline constexpr DecodeLimits default_decode_limits{};

// Budget for the heap memory of decoded values. It is acquired in steps before the memory is allocated. The provider of
// the budget releases it.
class DecodeBudget {
 public:
  // Memory that each decoder may use without acquiring it.
  static constexpr std::size_t free_bytes = 4096;
  // Size of a step. A value that needs more acquires more.
  static constexpr std::size_t step_bytes = 64 * 1024;

  // False if there is not enough left. Nothing is acquired then.
  virtual bool acquire(std::size_t bytes) noexcept = 0;

 protected:
  ~DecodeBudget() = default;
};

// Holds copies of sequences that were received misaligned for their element type and are decoded as views. Empty,
// without an allocation, until the first such sequence. The views are valid as long as the arena. Used by one thread at
// a time.
class DecodeArena {
 public:
  DecodeArena() noexcept = default;
  DecodeArena(DecodeArena&& other) noexcept : newest_(std::exchange(other.newest_, nullptr)) {}
  DecodeArena& operator=(DecodeArena&& other) noexcept {
    std::swap(newest_, other.newest_);
    return *this;
  }
  ~DecodeArena() {
    if (newest_ != nullptr) release();
  }

  // Alignment of every copy, in bytes.
  static constexpr std::size_t alignment = 64;

  // Returns a copy of `bytes` that is valid as long as the arena.
  const std::byte* copy(Bytes bytes);
  bool empty() const noexcept { return newest_ == nullptr; }

 private:
  struct Chunk;
  void release() noexcept;

  Chunk* newest_ = nullptr;
};

// States that no decoded value takes heap memory; see takes_memory in views.h.
struct NoMemory {};
inline constexpr NoMemory no_memory{};

// Decodes values from a received message. It reads nothing outside of the two ranges, whatever they contain, and
// allocates memory only in proportion to their size. After the first failure, only error() may be called.
class Decoder {
 public:
  // Decoded views refer to `body`, `payload` and `arena`, which outlive them. Without an arena, a misaligned span fails
  // with ErrorCode::internal; an arena is needed only for spans of elements wider than a byte. With a `budget`, which
  // outlives the decoder, memory beyond DecodeBudget::free_bytes is acquired from it.
  explicit Decoder(Bytes body, Bytes payload = {}, const DecodeLimits& limits = {}, DecodeArena* arena = nullptr,
                   DecodeBudget* budget = nullptr) noexcept
      : Decoder(body, payload, limits, limits.memory_bytes(body.size() + payload.size()), arena, budget) {
    if (budget != nullptr && memory_bytes_left_ > DecodeBudget::free_bytes) {
      memory_bytes_unpaid_ = memory_bytes_left_ - DecodeBudget::free_bytes;
      memory_bytes_left_ = DecodeBudget::free_bytes;
    }
  }
  Decoder(Bytes body, Bytes payload, const DecodeLimits& limits, NoMemory) noexcept
      : Decoder(body, payload, limits, 0, nullptr, nullptr) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  std::size_t available() const noexcept { return static_cast<std::size_t>(end_ - cursor_); }
  // The payload that no value has used so far: the attachment, after all values are decoded.
  Bytes payload_rest() const noexcept { return {payload_, payload_end_}; }

  // In the functions below, `what` names the kind of value for the error text, and false means failure. Codecs use
  // these functions.

  bool take(std::size_t bytes, const std::byte*& data, const char* what) noexcept {
    if (bytes > available()) [[unlikely]]
      return fail_short(what, bytes);
    data = cursor_;
    cursor_ += bytes;
    return true;
  }
  bool copy(void* to, std::size_t bytes, const char* what) noexcept {
    if (bytes > available()) [[unlikely]]
      return fail_short(what, bytes);
    if (bytes != 0) detail::copy_bytes(to, cursor_, bytes);
    cursor_ += bytes;
    return true;
  }
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  bool read_scalar(T& value, const char* what) noexcept {
    return copy(&value, sizeof(T), what);
  }
  // Reads the count of a sequence whose elements follow in the body and take at least `element_bytes_min` each there.
  bool read_count(std::size_t& count, std::size_t element_bytes_min, const char* what) noexcept {
    std::uint32_t announced = 0;
    if (!read_scalar(announced, what)) return false;
    count = announced;
    if (element_bytes_min == 0) return take_empty_elements(count, what);
    if (count > available() / element_bytes_min) [[unlikely]]
      return fail_count(what, count);
    return true;
  }
  // Reads the count of a sequence of blocks, and returns the address of its `count * element_bytes` bytes in the body
  // or the payload.
  bool take_blocks(std::size_t element_bytes, const std::byte*& data, std::size_t& count, const char* what) noexcept {
    std::uint32_t announced = 0;
    if (!read_scalar(announced, what)) return false;
    count = announced;
    if (announced > count_max_) [[unlikely]] {
      count = announced & count_max_;
      return take_payload(count * element_bytes, data, what);
    }
    return take(count * element_bytes, data, what);
  }
  // Called before memory is allocated for decoded values.
  bool charge(std::size_t bytes, const char* what) noexcept {
    if (bytes > memory_bytes_left_) [[unlikely]]
      return charge_more(bytes, what);
    memory_bytes_left_ -= bytes;
    return true;
  }
  // Memory that charge() may still grant, if the budget has it.
  std::size_t memory_left() const noexcept { return memory_bytes_left_ + memory_bytes_unpaid_; }
  // Called while a hash container is filled, after `inserted` insertions that compared `passed` entries in total.
  bool check_passes(std::size_t passed, std::size_t inserted, const char* what) noexcept {
    if (passed > bucket_passes_max_ * inserted) [[unlikely]]
      return fail_passes(passed, inserted, what);
    return true;
  }
  // False if the container has too few entries to exceed the limit of check_passes().
  bool may_flood(std::size_t count) const noexcept { return count / 2 > bucket_passes_max_; }
  // Leaves `data` unchanged if it is aligned; otherwise replaces it by a copy in the arena. `alignment` is at most
  // DecodeArena::alignment.
  bool align(const std::byte*& data, std::size_t bytes, std::size_t alignment, const char* what) {
    if (reinterpret_cast<std::uintptr_t>(data) % alignment == 0) [[likely]]
      return true;
    return align_by_copy(data, bytes, what);
  }

  // Called before and after the elements of a container or pointer; not for an empty one. After a failure, leave() is
  // not called.
  bool enter(const char* what) noexcept {
    if (depth_left_ == 0) [[unlikely]]
      return fail_limit(what, "nested too deeply (depth_max)");
    --depth_left_;
    return true;
  }
  void leave() noexcept { ++depth_left_; }
  std::size_t message_depth_max() const noexcept { return message_depth_max_; }

  // Restricts reading to the next `bytes`, which must be available. Returns the argument for widen().
  const std::byte* narrow(std::size_t bytes) noexcept { return std::exchange(end_, cursor_ + bytes); }
  // Skips the rest of the restricted range and ends the restriction.
  void widen(const std::byte* outer_end) noexcept { cursor_ = std::exchange(end_, outer_end); }
  bool set_payload_allowed(bool allowed) noexcept { return std::exchange(payload_allowed_, allowed); }

  // Fails unless the body has been used completely.
  bool finish_body() noexcept { return cursor_ == end_ || fail("message", "bytes follow the last value"); }
  // Fails unless body and payload have been used completely.
  bool finish() noexcept {
    return finish_body() && (payload_ == payload_end_ || fail("message", "payload follows the last value"));
  }

  // Record a failure for error() and return false. The texts must be valid until error() has been called.
  bool fail(const char* what, const char* reason) noexcept { return fail(ErrorCode::protocol_error, what, reason, 0); }
  bool fail_limit(const char* what, const char* reason) noexcept {
    return fail(ErrorCode::limit_exceeded, what, reason, 0);
  }

  // After a failure: the kind of value, its offset in the body, and the reason.
  Error error() const;

 private:
  static constexpr std::uint32_t count_max_ = 0x7fff'ffff;

  Decoder(Bytes body, Bytes payload, const DecodeLimits& limits, std::size_t memory_bytes, DecodeArena* arena,
          DecodeBudget* budget) noexcept
      : cursor_(body.data()),
        end_(body.data() + body.size()),
        payload_(payload.data()),
        payload_begin_(payload.data()),
        payload_end_(payload.data() + payload.size()),
        depth_left_(limits.depth_max),
        empty_elements_left_(limits.empty_elements_max),
        memory_bytes_left_(memory_bytes),
        bucket_passes_max_(limits.bucket_passes_max),
        message_depth_max_(limits.message_depth_max),
        begin_(body.data()),
        arena_(arena),
        budget_(budget) {}

  bool take_empty_elements(std::size_t count, const char* what) noexcept;
  [[gnu::cold]] bool charge_more(std::size_t bytes, const char* what) noexcept;
  [[gnu::cold]] bool fail_passes(std::size_t passed, std::size_t inserted, const char* what) noexcept;
  bool take_payload(std::size_t bytes, const std::byte*& data, const char* what) noexcept;
  bool align_by_copy(const std::byte*& data, std::size_t bytes, const char* what);

  bool fail(ErrorCode code, const char* what, const char* reason, std::size_t announced) noexcept {
    note(code, what, reason, announced);
    return false;  // Inline, so that the compiler sees the result and success paths need no test.
  }
  bool fail_short(const char* what, std::size_t bytes) noexcept {
    return fail(ErrorCode::protocol_error, what, "the body has fewer bytes than announced", bytes);
  }
  bool fail_count(const char* what, std::size_t count) noexcept {
    return fail(ErrorCode::protocol_error, what, "the body is too short for that many elements", count);
  }
  [[gnu::cold]] void note(ErrorCode code, const char* what, const char* reason, std::size_t announced) noexcept;

  const std::byte* cursor_;
  const std::byte* end_;
  const std::byte* payload_;
  const std::byte* payload_begin_;
  const std::byte* payload_end_;
  std::size_t depth_left_;
  std::size_t empty_elements_left_;
  std::size_t memory_bytes_left_;        // Acquired or free of charge.
  std::size_t memory_bytes_unpaid_ = 0;  // Additional memory that is allowed after it was acquired from budget_.
  std::size_t bucket_passes_max_;
  std::size_t message_depth_max_;
  const std::byte* begin_;
  DecodeArena* arena_;
  DecodeBudget* budget_;
  bool payload_allowed_ = true;

  // Set by the first failure.
  ErrorCode code_ = ErrorCode::ok;
  const char* what_ = nullptr;
  const char* reason_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t announced_ = 0;  // Bytes or elements that the message announced; 0 if that does not apply.
  std::size_t limit_ = 0;      // The limit that was exceeded; 0 if reason_ is sufficient.
};

}  // namespace hawser::codec
