#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/detail/receive_account.h"
#include "hawser/http.h"

// Content-Encoding: gzip, for requests and responses. Without zlib (HAWSER_HTTP_GZIP) nothing is compressed or
// decompressed.
namespace hawser::protocol::http {

// Bodies of more bytes are compressed on a thread of the offload pool, because that takes time of the loop: about
// 10 ms for 1 MB.
inline constexpr std::size_t gzip_in_place_max = 16 * 1024;

bool can_gzip() noexcept;

// True if the value of Accept-Encoding allows gzip: by name or by *, with a weight above 0.
bool accepts_gzip(std::string_view accept_encoding) noexcept;
// True for media types whose bodies usually become smaller: text, JSON, XML, scripts.
bool is_compressible(std::string_view content_type) noexcept;

// The compressed bytes, or nothing if they are not fewer.
std::optional<std::string> gzip(Bytes bytes);
// Decompresses a body of at most `bytes_max` bytes, counted as they appear. Fails with invalid_argument if it is
// malformed or longer.
Result<Buffer> gunzip(Bytes compressed, std::size_t bytes_max);

// Compresses the body of a route's response if the options, its type and the client's Accept-Encoding allow it, on a
// thread of the pool if it is long.
Task<void> gzip_response(const HttpOptions& options, Loop& loop, const void* connection, std::string_view accepted,
                         HttpResponse& response);
// Likewise for a response that has a `stream`: its writer compresses each part then. The memory for it is charged to
// `account`, if that is not null, until `response` is destroyed. `head_only`: the response answers HEAD.
void gzip_parts(const HttpOptions& options, detail::ReceiveAccount* account, std::string_view accepted, bool head_only,
                HttpResponse& response);

}  // namespace hawser::protocol::http
