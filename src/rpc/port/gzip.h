#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"

// Compression for several protocols. Each of their components compiles it, since libhawser.a has no zlib. No I/O.
namespace hawser::compression {

inline constexpr int gzip_window_bits = 15 + 16;  // 16 selects the gzip format.
inline constexpr int gzip_memory_level = 8;

enum class Problem : std::uint8_t { none, malformed, too_large, no_memory };

struct Unpacked {
  Problem problem = Problem::none;
  Buffer data = {};  // If there is no problem.
};

// Output of at most `bytes_max` bytes, which grows in proportion to what has been written. `charge` pays for it with
// `account`, if that is not null.
class GrowingOutput {
 public:
  GrowingOutput(std::size_t first, std::size_t bytes_max, detail::ReceiveAccount* account,
                detail::ReceiveCharge& charge)
      : bytes_max_(bytes_max), account_(account), charge_(charge) {
    allowed_ = resize(std::clamp<std::size_t>(first, 1, std::max<std::size_t>(bytes_max, 1)));
  }

  // False if the account has refused memory.
  bool allowed() const noexcept { return allowed_; }
  bool full() const noexcept { return used_ == buffer_.size(); }
  std::byte* end() noexcept { return buffer_.mutable_data() + used_; }
  std::size_t room() const noexcept { return buffer_.size() - used_; }
  void add(std::size_t bytes) noexcept { used_ += bytes; }
  bool at_limit() const noexcept { return used_ >= bytes_max_; }
  // Called when it is full and below the limit.
  void grow() { allowed_ = resize(std::min(buffer_.size() * 2, bytes_max_)); }
  Buffer take() { return buffer_.slice(0, used_); }

 private:
  bool resize(std::size_t bytes) {
    if (account_ != nullptr && !charge_.add(*account_, bytes - buffer_.size())) return false;
    Buffer larger = Buffer::allocate(bytes);
    if (used_ != 0) std::memcpy(larger.mutable_data(), buffer_.data(), used_);
    buffer_ = std::move(larger);
    return true;
  }

  const std::size_t bytes_max_;
  detail::ReceiveAccount* const account_;
  detail::ReceiveCharge& charge_;
  Buffer buffer_;
  std::size_t used_ = 0;
  bool allowed_ = true;
};

// Decompresses one gzip member, which is the whole of `in`.
inline Unpacked gunzip(Bytes in, GrowingOutput out) {
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window_bits) != Z_OK) return {.problem = Problem::no_memory};
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  while (true) {
    if (!out.allowed()) return {.problem = Problem::no_memory};
    // One byte more than the limit shows that the output is too large.
    std::byte spare{};
    const bool over = out.full();
    stream.next_out = reinterpret_cast<Bytef*>(over ? &spare : out.end());
    stream.avail_out = over ? 1 : static_cast<uInt>(out.room());
    const uInt offered = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const uInt written = offered - stream.avail_out;
    if (over && written != 0) return {.problem = Problem::too_large};
    if (!over) out.add(written);
    if (status == Z_STREAM_END) {
      if (stream.avail_in != 0) return {.problem = Problem::malformed};
      return {.data = out.take()};
    }
    if (status != Z_OK && status != Z_BUF_ERROR) return {.problem = Problem::malformed};
    if (stream.avail_in == 0 && stream.avail_out != 0) return {.problem = Problem::malformed};
    if (over && status == Z_BUF_ERROR) return {.problem = Problem::malformed};
    if (out.full() && !out.at_limit()) out.grow();
  }
}

// Compresses at the best speed.
inline Unpacked gzip(Bytes in) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, gzip_window_bits, gzip_memory_level, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return {.problem = Problem::no_memory};
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &deflateEnd);
  Buffer out = Buffer::allocate(deflateBound(&stream, in.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.mutable_data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return {.problem = Problem::malformed};
  return {.data = out.slice(0, out.size() - stream.avail_out)};
}

}  // namespace hawser::compression
