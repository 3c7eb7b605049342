#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/grpc.h"
#include "rpc/port/body_form.h"

namespace hawser::protocol::grpc {

// Compression of messages, named by grpc-encoding.
enum class Encoding : std::uint8_t { identity, gzip, zstd, unknown };

Encoding encoding_of(GrpcCompression compression) noexcept;
Encoding parse_encoding(std::string_view name) noexcept;
std::string_view to_string(Encoding encoding) noexcept;

// A set of encodings, from grpc-accept-encoding.
class Encodings {
 public:
  // A list that is separated by commas. Unknown names are ignored.
  static Encodings parse(std::string_view list) noexcept;
  bool has(Encoding encoding) const noexcept { return (bits_ & (1U << static_cast<unsigned>(encoding))) != 0; }
  void add(Encoding encoding) noexcept { bits_ |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(encoding)); }

 private:
  std::uint8_t bits_ = 1;  // identity is always accepted.
};

// The value of grpc-accept-encoding that this build sends.
inline constexpr std::string_view accepted_encodings = "identity,gzip,zstd";

// `encoding` is gzip or zstd. Fails if memory is exhausted.
Result<Buffer> compress(Encoding encoding, Bytes message);
// Fails with protocol_error if the bytes are malformed, and with limit_exceeded if the message is larger than
// `bytes_max` or does not fit into what `account`, if it is not null, has left. The memory grows with the output, so a
// small input does not announce a large one. `charge` pays for the result.
Result<Buffer> decompress(Encoding encoding, Bytes compressed, std::size_t bytes_max, detail::ReceiveAccount* account,
                          detail::ReceiveCharge& charge);

// A compressed message that another thread decompresses, because that takes long.
struct PackedMessage {
  Encoding encoding = Encoding::identity;
  Buffer bytes = {};
  std::size_t bytes_max = 0;          // The result has at most so many bytes, for which memory is charged.
  std::size_t message_bytes_max = 0;  // The limit of the options.
};
// The length of the result, if the message states it. Its sender may lie.
std::optional<std::size_t> announced_bytes(Encoding encoding, Bytes compressed) noexcept;
// Fails as decompress() does. Any thread.
Result<Buffer> unpack(const PackedMessage& packed);
// How a packed request becomes the arguments. `encoding` is gzip or zstd.
rpc::BodyForm form_of(Encoding encoding, Bytes packed, std::size_t message_bytes_max) noexcept;

// A session whose calls choose for each message whether it is compressed.
class CompressionChoice {
 public:
  // Called before a message of `call` is written. False if the other side does not accept `encoding`.
  virtual bool choose_compression(std::uint32_t call, Encoding encoding) = 0;

 protected:
  ~CompressionChoice() = default;
};

}  // namespace hawser::protocol::grpc
