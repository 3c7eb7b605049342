#include "protocol/grpc/compression.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "compress/deflate.h"

namespace hawser::protocol::grpc {
namespace {

using compress::GrowingOutput;
using compress::Problem;

// A frame of zstd whose window is larger is refused: the decoder would allocate the window.
constexpr int zstd_window_log_max = 23;

std::unexpected<Error> malformed(std::string_view name) {
  return fail(Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                             "the message can't be decompressed: it is not a valid " + std::string(name)));
}
std::unexpected<Error> too_large(std::size_t bytes_max) {
  return fail(Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                             "the decompressed message exceeds the limit of " + count_text(bytes_max, "byte") +
                                 ": send less, or raise message_bytes_max"));
}
std::unexpected<Error> no_memory() {
  return fail(ErrorCode::overloaded,
              "the decompressed message does not fit into the memory for what is received and kept "
              "(receive_bytes_max): send again later");
}

Result<Buffer> gunzip(Bytes in, std::size_t bytes_max, GrowingOutput out) {
  compress::Unpacked result = compress::inflate_all(compress::Format::gzip, in, std::move(out));
  switch (result.problem) {
    case Problem::malformed: return malformed("gzip");
    case Problem::too_large: return too_large(bytes_max);
    case Problem::no_memory: return no_memory();
    case Problem::none: break;
  }
  return std::move(result.data);
}

Result<Buffer> unzstd(Bytes in, std::size_t bytes_max, GrowingOutput out) {
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

Encoding encoding_of(GrpcCompression compression) noexcept {
  switch (compression) {
    case GrpcCompression::gzip: return Encoding::gzip;
    case GrpcCompression::zstd: return Encoding::zstd;
    case GrpcCompression::none: break;
  }
  return Encoding::identity;
}

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
  // A long list costs its sender one byte if HPACK refers to it.
  constexpr int names_max = 16;
  for (int names = 0; names < names_max && !list.empty(); ++names) {
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
  compress::Deflater deflater({.format = compress::Format::gzip});
  if (!deflater.ready()) return fail(ErrorCode::internal, "no memory to compress a message");
  return deflater.all(message);
}

Result<Buffer> decompress(Encoding encoding, Bytes compressed, std::size_t bytes_max, detail::ReceiveAccount* account,
                          detail::ReceiveCharge& charge) {
  // An empty input is not a frame of either format, but some clients send it for an empty message.
  if (compressed.empty()) return Buffer();
  constexpr std::size_t first_bytes_least = 256;
  GrowingOutput out(std::max(compressed.size() * 4, first_bytes_least), bytes_max, account, charge);
  return encoding == Encoding::zstd ? unzstd(compressed, bytes_max, std::move(out))
                                    : gunzip(compressed, bytes_max, std::move(out));
}

std::optional<std::size_t> announced_bytes(Encoding encoding, Bytes compressed) noexcept {
  if (encoding == Encoding::zstd) {
    const unsigned long long bytes = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
    if (bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes == ZSTD_CONTENTSIZE_ERROR) return std::nullopt;
    return static_cast<std::size_t>(bytes);
  }
  const std::size_t bytes = compress::announced_bytes(compressed);
  return compressed.size() < sizeof(std::uint32_t) ? std::nullopt : std::optional(bytes);
}

namespace {

// `stated`: bytes_max is the length that the message states.
Result<Buffer> unpack_to(Encoding encoding, Bytes packed, std::size_t bytes_max, bool stated) {
  detail::ReceiveCharge none;
  Result<Buffer> message = decompress(encoding, packed, bytes_max, nullptr, none);
  if (!message && message.error().code == ErrorCode::limit_exceeded && stated) return malformed(to_string(encoding));
  return message;
}

template <Encoding encoding>
Result<Buffer> unpack_body(Bytes packed, std::size_t bytes_max) {
  return unpack_to(encoding, packed, bytes_max, announced_bytes(encoding, packed) == bytes_max);
}

}  // namespace

Result<Buffer> unpack(const PackedMessage& packed) {
  return unpack_to(packed.encoding, packed.bytes.bytes(), packed.bytes_max,
                   packed.bytes_max < packed.message_bytes_max);
}

rpc::BodyForm form_of(Encoding encoding, Bytes packed, std::size_t message_bytes_max) noexcept {
  return {.unpack = encoding == Encoding::zstd ? unpack_body<Encoding::zstd> : unpack_body<Encoding::gzip>,
          .unpacked_max = std::min(announced_bytes(encoding, packed).value_or(message_bytes_max), message_bytes_max)};
}

}  // namespace hawser::protocol::grpc
