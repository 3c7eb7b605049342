#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "compress/growing_output.h"
#include "hawser/bytes.h"

// The only users of zlib in the library. Only components that link zlib may use them. No I/O.
namespace hawser::compress {

enum class Format : std::uint8_t { gzip, zlib };

// The members of zlib's state that a stream keeps.
struct ZlibState;

// Decompresses one gzip member or one zlib stream.
class Inflater {
 public:
  explicit Inflater(Format format) noexcept;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater();

  // False if there was no memory. Then step() returns `no_memory`.
  bool ready() const noexcept { return state_ != nullptr; }

  enum class Status : std::uint8_t { more, end, malformed, no_memory };
  struct Step {
    Status status = Status::more;
    std::size_t read = 0;     // Bytes of the input.
    std::size_t written = 0;  // Bytes of the output.
  };
  // Decompresses as far as input or output go. `more` with room left in the output: it needs further input.
  Step step(Bytes in, std::span<std::byte> out) noexcept;
  // Begins the next member. Called at the end of one.
  void restart() noexcept;

 private:
  std::unique_ptr<ZlibState> state_;  // Null: there was no memory.
};

struct DeflaterOptions {
  Format format = Format::gzip;
  bool fast = true;      // Best speed instead of the default level.
  int window_bits = 15;  // From 9 to 15. The state has 2^(window_bits + 2) + 2^(memory_level + 9) bytes, and 6 KiB.
  int memory_level = 8;  // From 1 to 9.
};

class Deflater {
 public:
  explicit Deflater(const DeflaterOptions& options) noexcept;
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  ~Deflater();

  // False if there was no memory. Then no other function may be called.
  bool ready() const noexcept { return state_ != nullptr; }

  enum class Flush : std::uint8_t {
    none,  // The compressed bytes may come later.
    part,  // A receiver can decompress everything up to here.
    end,   // Nothing may follow.
  };
  // Appends compressed bytes to `out`, perhaps none.
  void add(Bytes in, Flush flush, std::string& out);
  // Compresses everything at once.
  Buffer all(Bytes in);

 private:
  std::unique_ptr<ZlibState> state_;
};

enum class Problem : std::uint8_t { none, malformed, too_large, no_memory };

struct Unpacked {
  Problem problem = Problem::none;
  Buffer data = {};  // If there is no problem.
};
// Decompresses one gzip member or one zlib stream, which is the whole of `in`.
Unpacked inflate_all(Format format, Bytes in, GrowingOutput out);

// The length that a gzip member states in its last bytes (RFC 1952: ISIZE), modulo 2^32; 0 if there are fewer than 4
// bytes. Its sender may lie.
inline std::size_t announced_bytes(Bytes gzip) noexcept {
  constexpr std::size_t length_bytes = 4;
  std::size_t bytes = 0;
  for (std::size_t i = 0; gzip.size() >= length_bytes && i < length_bytes; ++i) {
    bytes |= std::to_integer<std::size_t>(gzip[gzip.size() - length_bytes + i]) << (8 * i);
  }
  return bytes;
}

}  // namespace hawser::compress
