#include "protocol/grpc/compression.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace hawser::protocol::grpc {
namespace {

constexpr int gzip_window_bits = 15 + 16;  // 16 selects the gzip format.
constexpr int gzip_memory_level = 8;
// A frame of zstd whose window is larger is refused: the decoder would allocate the window.
constexpr int zstd_window_log_max = 23;

std::unexpected<Error> malformed(std::string_view name) {
  return fail(ErrorCode::protocol_error, "the message can't be decompressed: it is no valid " + std::string(name),
              ErrorScope::call, Initiator::peer);
}
std::unexpected<Error> too_large(std::size_t bytes_max) {
  return fail(ErrorCode::limit_exceeded,
              "the decompressed message exceeds the limit of " + std::to_string(bytes_max) +
                  " bytes: send less, or raise message_bytes_max",
              ErrorScope::call, Initiator::peer);
}
std::unexpected<Error> no_memory() {
  return fail(ErrorCode::overloaded,
              "the decompressed message does not fit into the memory for what is received and kept "
              "(receive_bytes_max): send again later");
}

// Output that grows in proportion to what has been written.
class Output {
 public:
  Output(std::size_t first, std::size_t bytes_max, detail::ReceiveAccount* account, detail::ReceiveCharge& charge)
      : bytes_max_(bytes_max), account_(account), charge_(charge) {
    allowed_ = resize(std::clamp<std::size_t>(first, 1, std::max<std::size_t>(bytes_max, 1)));
  }

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

Result<Buffer> gunzip(Bytes in, std::size_t bytes_max, Output out) {
  z_stream stream{};
  if (inflateInit2(&stream, gzip_window_bits) != Z_OK) return no_memory();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  while (true) {
    if (!out.allowed()) return no_memory();
    // One byte more than the limit shows that the message is too large.
    std::byte spare{};
    const bool over = out.full();
    stream.next_out = reinterpret_cast<Bytef*>(over ? &spare : out.end());
    stream.avail_out = over ? 1 : static_cast<uInt>(out.room());
    const uInt offered = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const uInt written = offered - stream.avail_out;
    if (over && written != 0) return too_large(bytes_max);
    if (!over) out.add(written);
    if (status == Z_STREAM_END) return stream.avail_in == 0 ? Result<Buffer>(out.take()) : malformed("gzip");
    if (status != Z_OK && status != Z_BUF_ERROR) return malformed("gzip");
    if (stream.avail_in == 0 && stream.avail_out != 0) return malformed("gzip");
    if (over && status == Z_BUF_ERROR) return malformed("gzip");
    if (out.full() && !out.at_limit()) out.grow();
  }
}

Result<Buffer> unzstd(Bytes in, std::size_t bytes_max, Output out) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  if (context == nullptr) return no_memory();
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, zstd_window_log_max);
  ZSTD_inBuffer input{in.data(), in.size(), 0};
  while (true) {
    if (!out.allowed()) return no_memory();
    std::byte spare{};
    const bool over = out.full();
    ZSTD_outBuffer output{over ? &spare : out.end(), over ? 1 : out.room(), 0};
    const std::size_t read_before = input.pos;
    const std::size_t status = ZSTD_decompressStream(context.get(), &output, &input);
    if (ZSTD_isError(status) != 0) return malformed("zstd");
    if (over && output.pos != 0) return too_large(bytes_max);
    if (!over) out.add(output.pos);
    if (status == 0) return input.pos == input.size ? Result<Buffer>(out.take()) : malformed("zstd");
    // Neither input nor output moved: the frame is cut off.
    if (input.pos == input.size && output.pos < output.size) return malformed("zstd");
    if (input.pos == read_before && output.pos == 0 && over) return malformed("zstd");
    if (out.full() && !out.at_limit()) out.grow();
  }
}

}  // namespace

Encoding parse_encoding(std::string_view name) noexcept {
  if (name == "identity") return Encoding::identity;
  if (name == "gzip") return Encoding::gzip;
  if (name == "zstd") return Encoding::zstd;
  return Encoding::unknown;
}

std::string_view to_string(Encoding encoding) noexcept {
  switch (encoding) {
    case Encoding::identity: return "identity";
    case Encoding::gzip: return "gzip";
    case Encoding::zstd: return "zstd";
    case Encoding::unknown: break;
  }
  return "unknown";
}

Encodings Encodings::parse(std::string_view list) noexcept {
  Encodings found;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view name = list.substr(0, comma);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (const Encoding encoding = parse_encoding(name); encoding != Encoding::unknown) found.add(encoding);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return found;
}

Result<Buffer> compress(Encoding encoding, Bytes message) {
  if (encoding == Encoding::zstd) {
    Buffer out = Buffer::allocate(ZSTD_compressBound(message.size()));
    const std::size_t size =
        ZSTD_compress(out.mutable_data(), out.size(), message.data(), message.size(), ZSTD_CLEVEL_DEFAULT);
    if (ZSTD_isError(size) != 0) return fail(ErrorCode::internal, "zstd: " + std::string(ZSTD_getErrorName(size)));
    return out.slice(0, size);
  }
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, gzip_window_bits, gzip_memory_level, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    return fail(ErrorCode::internal, "no memory to compress a message");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, &deflateEnd);
  Buffer out = Buffer::allocate(deflateBound(&stream, message.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(message.data()));
  stream.avail_in = static_cast<uInt>(message.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.mutable_data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) return fail(ErrorCode::internal, "gzip could not compress a message");
  return out.slice(0, out.size() - stream.avail_out);
}

Result<Buffer> decompress(Encoding encoding, Bytes compressed, std::size_t bytes_max, detail::ReceiveAccount* account,
                          detail::ReceiveCharge& charge) {
  // An empty input is no frame of either format, but some clients send it for an empty message.
  if (compressed.empty()) return Buffer();
  constexpr std::size_t first_bytes_least = 256;
  Output out(std::max(compressed.size() * 4, first_bytes_least), bytes_max, account, charge);
  return encoding == Encoding::zstd ? unzstd(compressed, bytes_max, std::move(out))
                                    : gunzip(compressed, bytes_max, std::move(out));
}

}  // namespace hawser::protocol::grpc
