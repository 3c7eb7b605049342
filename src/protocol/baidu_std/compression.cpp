#include "protocol/baidu_std/compression.h"

#include <snappy.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/decimal_text.h"
#include "compress/deflate.h"
#include "hawser/detail/receive_account.h"

namespace hawser::protocol::baidu_std {
namespace {

std::unexpected<Error> damaged(const char* format) {
  return fail(ErrorCode::invalid_argument, std::string("the data is damaged: it is not valid ") + format);
}
std::unexpected<Error> too_long(std::size_t bytes_max) {
  return fail(ErrorCode::limit_exceeded, "the decompressed data exceeds message_bytes_max (" +
                                             count_text(bytes_max, "byte") + "): raise it or send less");
}
std::unexpected<Error> unsupported(Compression type) {
  return fail(ErrorCode::invalid_argument, "compression " + std::to_string(static_cast<std::int32_t>(type)) +
                                               " is not supported: use none, snappy, gzip or zlib");
}

// A copy of 64 bytes takes two bytes at least, so an announcement is checked before memory is allocated.
constexpr std::size_t snappy_factor_max = 64;
// Two bits of deflate stand for 258 bytes at most.
constexpr std::size_t deflate_factor_max = 1032;

Result<Buffer> unsnap(Bytes data, std::size_t bytes_max) {
  const std::string_view text = as_text(data);
  std::size_t size = 0;
  if (!snappy::GetUncompressedLength(text.data(), text.size(), &size)) return damaged("snappy");
  if (size / snappy_factor_max > text.size()) return damaged("snappy");
  if (size > bytes_max) return too_long(bytes_max);
  Buffer result = Buffer::allocate(size);
  if (!snappy::RawUncompress(text.data(), text.size(), reinterpret_cast<char*>(result.mutable_data()))) {
    return damaged("snappy");
  }
  return result;
}

Result<Buffer> unzip(Bytes data, compress::Format format, std::size_t bytes_max) {
  constexpr std::size_t first_bytes_least = 4096;
  const bool gzip = format == compress::Format::gzip;
  detail::ReceiveCharge none;
  compress::GrowingOutput out(std::max(4 * data.size(), first_bytes_least), bytes_max, nullptr, none);
  compress::Unpacked unpacked = compress::inflate_all(format, data, std::move(out));
  switch (unpacked.problem) {
    case compress::Problem::malformed: return damaged(gzip ? "gzip" : "zlib");
    case compress::Problem::too_large:
      return gzip && compress::announced_bytes(data) == bytes_max ? damaged("gzip") : too_long(bytes_max);
    case compress::Problem::no_memory: return fail(ErrorCode::overloaded, "no memory to decompress the data");
    case compress::Problem::none: break;
  }
  return std::move(unpacked.data);
}
Result<Buffer> ungzip(Bytes data, std::size_t bytes_max) { return unzip(data, compress::Format::gzip, bytes_max); }
Result<Buffer> unzlib(Bytes data, std::size_t bytes_max) { return unzip(data, compress::Format::zlib, bytes_max); }

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

rpc::BodyForm::Unpack unpack_of(Compression type) noexcept {
  switch (type) {
    case Compression::snappy: return unsnap;
    case Compression::gzip: return ungzip;
    case Compression::zlib: return unzlib;
    case Compression::none:
    case Compression::lz4: break;
  }
  return nullptr;
}

std::size_t unpacked_bytes_max(Compression type, Bytes data, std::size_t bytes_max) noexcept {
  std::size_t bytes = 0;
  if (type == Compression::snappy) {
    const std::string_view text = as_text(data);
    if (!snappy::GetUncompressedLength(text.data(), text.size(), &bytes)) bytes = 0;
    if (bytes / snappy_factor_max > data.size()) bytes = 0;  // It is not valid.
  } else {
    bytes = type == Compression::gzip ? compress::announced_bytes(data) : deflate_factor_max * data.size();
  }
  return std::min(bytes, bytes_max);
}

Result<Buffer> decompress(Compression type, Bytes data, std::size_t bytes_max) {
  const rpc::BodyForm::Unpack unpack = unpack_of(type);
  return unpack == nullptr ? unsupported(type) : unpack(data, bytes_max);
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
  return unsupported(type);
}

}  // namespace hawser::protocol::baidu_std
