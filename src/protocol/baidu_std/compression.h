#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "protocol/baidu_std/rpc_meta.h"

// Compression of the data of a frame: the raw format of snappy, gzip, and zlib.
namespace hawser::protocol::baidu_std {

// True for the types that compress() and decompress() know, without `none`.
bool can_compress(std::int32_t compress_type) noexcept;

// Data after decompression, with the charge for its memory.
struct Decompressed {
  Buffer data;
  detail::ReceiveCharge charge;
};

// Fails with `limit_exceeded` if the result has more than `bytes_max` bytes, with `overloaded` if `account`, which may
// be null, refuses its memory, and with `invalid_argument` if the data is damaged. The memory grows with what has been
// decompressed, and is charged before it is allocated.
Result<Decompressed> decompress(Compression type, Bytes data, std::size_t bytes_max, detail::ReceiveAccount* account);

// `type` is not none.
Result<Buffer> compress(Compression type, Bytes data);

}  // namespace hawser::protocol::baidu_std
