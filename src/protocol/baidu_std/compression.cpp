#include "protocol/baidu_std/compression.h"

#include <snappy.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "compress/deflate.h"

namespace hawser::protocol::baidu_std {
namespace {

std::unexpected<Error> damaged(const char* format) {
  return fail(ErrorCode::invalid_argument, std::string("the data is damaged: it is not valid ") + format);
}
std::unexpected<Error> too_long(std::size_t bytes_max) {
  return fail(ErrorCode::limit_exceeded, "the decompressed data exceeds message_bytes_max (" +
                                             std::to_string(bytes_max) + " bytes): raise it or send less");
}
std::unexpected<Error> no_memory() {
  return fail(ErrorCode::overloaded,
              "the decompressed data does not fit into the memory for what is received and kept (receive_bytes_max): "
              "send again later, or raise it");
}

bool charge(Decompressed& to, std::size_t bytes, detail::ReceiveAccount* account) noexcept {
  return account == nullptr || to.charge.add(*account, bytes);
}

Result<Decompressed> unsnap(Bytes data, std::size_t bytes_max, detail::ReceiveAccount* account) {
  const std::string_view text = as_text(data);
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(text.data(), text.size(), &size)) return damaged("snappy");
  if (size > bytes_max) return too_long(bytes_max);
  // A copy of 64 bytes takes two bytes at least, so the announcement is checked before memory is allocated.
  constexpr std::size_t factor_max = 64;
  if (size / factor_max > text.size()) return damaged("snappy");
  Decompressed result;
  if (!charge(result, size, account)) return no_memory();
  result.data = Buffer::allocate(size);
  if (!snappy::RawUncompress(text.data(), text.size(), reinterpret_cast<char*>(result.data.mutable_data()))) {
    return damaged("snappy");
  }
  return result;
}

Result<Decompressed> unzip(Bytes data, compress::Format format, std::size_t bytes_max,
                           detail::ReceiveAccount* account) {
  constexpr std::size_t first_bytes_least = 4096;
  Decompressed result;
  compress::GrowingOutput out(std::max(4 * data.size(), first_bytes_least), bytes_max, account, result.charge);
  compress::Unpacked unpacked = compress::inflate_all(format, data, std::move(out));
  switch (unpacked.problem) {
    case compress::Problem::malformed: return damaged(format == compress::Format::gzip ? "gzip" : "zlib");
    case compress::Problem::too_large: return too_long(bytes_max);
    case compress::Problem::no_memory: return no_memory();
    case compress::Problem::none: break;
  }
  result.data = std::move(unpacked.data);
  return result;
}

Result<Buffer> zip(Bytes data, compress::Format format) {
  compress::Deflater deflater({.format = format, .fast = false});
  if (!deflater.ready()) return fail(ErrorCode::internal, "no memory to compress");
  return deflater.all(data);
}

}  // namespace

bool can_compress(std::int32_t compress_type) noexcept {
  return compress_type == static_cast<std::int32_t>(Compression::snappy) ||
         compress_type == static_cast<std::int32_t>(Compression::gzip) ||
         compress_type == static_cast<std::int32_t>(Compression::zlib);
}

Result<Decompressed> decompress(Compression type, Bytes data, std::size_t bytes_max, detail::ReceiveAccount* account) {
  switch (type) {
    case Compression::snappy: return unsnap(data, bytes_max, account);
    case Compression::gzip: return unzip(data, compress::Format::gzip, bytes_max, account);
    case Compression::zlib: return unzip(data, compress::Format::zlib, bytes_max, account);
    case Compression::none:
    case Compression::lz4: break;
  }
  return fail(ErrorCode::invalid_argument, "compression " + std::to_string(static_cast<std::int32_t>(type)) +
                                               " is not supported: use none, snappy, gzip or zlib");
}

Result<Buffer> compress(Compression type, Bytes data) {
  switch (type) {
    case Compression::snappy: {
      Buffer out = Buffer::allocate(snappy::MaxCompressedLength(data.size()));
      std::size_t size = 0;
      snappy::RawCompress(as_text(data).data(), data.size(), reinterpret_cast<char*>(out.mutable_data()), &size);
      return out.slice(0, size);
    }
    case Compression::gzip: return zip(data, compress::Format::gzip);
    case Compression::zlib: return zip(data, compress::Format::zlib);
    case Compression::none:
    case Compression::lz4: break;
  }
  return fail(ErrorCode::invalid_argument, "compression " + std::to_string(static_cast<std::int32_t>(type)) +
                                               " is not supported: use none, snappy, gzip or zlib");
}

}  // namespace hawser::protocol::baidu_std
