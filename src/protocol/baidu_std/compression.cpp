#include "protocol/baidu_std/compression.h"

#include <snappy.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace hawser::prpc {
namespace {

constexpr int gzip_window_bits = 15 + 16;
constexpr int zlib_window_bits = 15;

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

struct Inflater {
  z_stream stream{};
  bool open = false;
  ~Inflater() {
    if (open) inflateEnd(&stream);
  }
};

Result<Decompressed> unzip(Bytes data, int window_bits, std::size_t bytes_max, detail::ReceiveAccount* account) {
  const char* const format = window_bits == gzip_window_bits ? "gzip" : "zlib";
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (inflateInit2(&stream, window_bits) != Z_OK) return fail(ErrorCode::overloaded, "no memory to decompress");
  inflater.open = true;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  Decompressed result;
  std::size_t room = std::min(bytes_max, std::max<std::size_t>(4096, 4 * data.size()));
  if (!charge(result, room, account)) return no_memory();
  result.data = Buffer::allocate(std::max<std::size_t>(room, 1));
  std::size_t done = 0;
  for (;;) {
    // One byte more than the limit shows that the data is longer.
    std::byte beyond{};
    const bool full = done == room;
    stream.next_out = reinterpret_cast<Bytef*>(full ? &beyond : result.data.mutable_data() + done);
    stream.avail_out = full ? 1 : static_cast<uInt>(room - done);
    const uInt offered = stream.avail_out;
    const int status = inflate(&stream, Z_NO_FLUSH);
    const uInt written = offered - stream.avail_out;
    if (full && written != 0) {
      if (room == bytes_max) return too_long(bytes_max);
      const std::size_t larger = std::min(bytes_max, 4 * room + 4096);
      if (!charge(result, larger - room, account)) return no_memory();
      Buffer grown = Buffer::allocate(larger);
      std::memcpy(grown.mutable_data(), result.data.data(), done);
      grown.mutable_data()[done] = beyond;
      result.data = std::move(grown);
      room = larger;
    }
    done += written;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK) return damaged(format);
    if (stream.avail_in == 0 && written == 0) return damaged(format);
  }
  if (stream.avail_in != 0) return damaged(format);
  result.data = result.data.slice(0, done);
  return result;
}

Result<Buffer> zip(Bytes data, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return fail(ErrorCode::internal, "no memory to compress");
  }
  Buffer out = Buffer::allocate(deflateBound(&stream, data.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.mutable_data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  const std::size_t size = stream.total_out;
  deflateEnd(&stream);
  if (status != Z_STREAM_END) return fail(ErrorCode::internal, "zlib did not compress the data");
  return out.slice(0, size);
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
    case Compression::gzip: return unzip(data, gzip_window_bits, bytes_max, account);
    case Compression::zlib: return unzip(data, zlib_window_bits, bytes_max, account);
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
    case Compression::gzip: return zip(data, gzip_window_bits);
    case Compression::zlib: return zip(data, zlib_window_bits);
    case Compression::none:
    case Compression::lz4: break;
  }
  return fail(ErrorCode::invalid_argument, "compression " + std::to_string(static_cast<std::int32_t>(type)) +
                                               " is not supported: use none, snappy, gzip or zlib");
}

}  // namespace hawser::prpc
