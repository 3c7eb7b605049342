#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "compress/deflate.h"
#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/sync.h"

// Bodies that are compressed and decompressed in parts. Without zlib (HAWSER_HTTP_GZIP) nothing is. No I/O.
namespace hawser::protocol::http {

// Compresses a body to one gzip member as its parts come. It keeps a window of 8 KiB of the body instead of 32 KiB,
// because a response may last for hours, and there may be thousands.
class BodyDeflater {
 public:
  // The memory that it holds, at most.
  static constexpr std::size_t memory_bytes = 72 * 1024;

  // Null if it can't be charged to `account`, so that the connection could not receive any more, or if there is no
  // memory or no zlib. `account`, if it is not null, outlives the object.
  static std::unique_ptr<BodyDeflater> make(detail::ReceiveAccount* account);
  BodyDeflater(const BodyDeflater&) = delete;
  BodyDeflater& operator=(const BodyDeflater&) = delete;
  ~BodyDeflater();

  using Flush = compress::Deflater::Flush;
  // Returns compressed bytes, perhaps none. Takes about 10 us for each KiB.
  std::string add(Bytes bytes, Flush flush);

  std::size_t turn_bytes = 0;  // Bytes since the loop last ran something else.
  Mutex writing;               // Held while a part is compressed and sent: compressed bytes have one order.

 private:
  struct State;
  explicit BodyDeflater(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
  detail::ReceiveCharge charge_;
};

// Decompresses a body of one or more gzip members as its parts come.
class BodyInflater {
 public:
  // Null if there is no memory or no zlib. It holds about 48 KiB.
  static std::unique_ptr<BodyInflater> make();
  BodyInflater(const BodyInflater&) = delete;
  BodyInflater& operator=(const BodyInflater&) = delete;
  ~BodyInflater();

  // Gives the next bytes of the compressed body. Called when wants_input().
  void give(std::string compressed) noexcept;
  // True if next() can return nothing more without further bytes.
  bool wants_input() const noexcept { return used_ == input_.size() && !more_ && !error_; }
  // Returns the next bytes of the body, at most `bytes_max`; perhaps none, also if it does not want input: some hundred
  // members may be empty. Fails with protocol_error if the body is malformed, after the bytes before that.
  Result<std::string> next(std::size_t bytes_max);
  // True if the body may end here.
  bool at_end() const noexcept { return between_members_; }

 private:
  struct State;
  explicit BodyInflater(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
  std::string input_;
  std::size_t used_ = 0;         // Bytes of input_ that have been decompressed.
  bool more_ = false;            // There may be more output without further input.
  bool between_members_ = true;  // No member has begun, or the last one has ended.
  std::optional<Error> error_;   // The rest can't be decompressed.
};

}  // namespace hawser::protocol::http
