#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "protocol/baidu_std/rpc_meta.h"
#include "rpc/port/body_form.h"

// Compression of the data of a frame: the raw format of snappy, gzip, and zlib.
namespace hawser::protocol::baidu_std {

// True for the types that compress() and decompress() know, without `none`.
bool can_compress(std::int32_t compress_type) noexcept;

// Fails with `limit_exceeded` if the result has more than `bytes_max` bytes, and with `invalid_argument` if the data is
// damaged. The memory grows with what has been decompressed. Any thread.
Result<Buffer> decompress(Compression type, Bytes data, std::size_t bytes_max);
// decompress() for one type. Null if can_compress() is false.
rpc::BodyForm::Unpack unpack_of(Compression type) noexcept;
// The result has at most so many bytes, and at most `bytes_max` if it is accepted.
std::size_t unpacked_bytes_max(Compression type, Bytes data, std::size_t bytes_max) noexcept;

// `type` is not none.
Result<Buffer> compress(Compression type, Bytes data);

}  // namespace hawser::protocol::baidu_std
