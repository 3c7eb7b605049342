#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"

namespace hawser::protocol::resp {

struct RequestLimits {
  std::size_t arguments_max = 1024 * 1024;
  std::size_t bulk_bytes_max = std::size_t{64} << 20;     // One argument.
  std::size_t request_bytes_max = std::size_t{68} << 20;  // One request with its headers.
  std::size_t line_bytes_max = 64 * 1024;                 // An inline request, or a header.
  // Numbers above the limits of arguments and up to these have an error of their own, for a client that has not
  // authenticated. 0: there are none.
  std::size_t arguments_valid_max = 0;
  std::size_t bulk_bytes_valid_max = 0;

  // The limits for a client that has not authenticated: those of Redis. What it announces takes little memory.
  RequestLimits before_authentication() const noexcept {
    constexpr std::size_t few = 10;
    constexpr std::size_t bulk_bytes = 16 * 1024;
    RequestLimits less = *this;
    less.arguments_max = std::min(arguments_max, few);
    less.bulk_bytes_max = std::min(bulk_bytes_max, bulk_bytes);
    less.arguments_valid_max = std::numeric_limits<std::int32_t>::max();
    less.bulk_bytes_valid_max = bulk_bytes_max;
    return less;
  }
};

// Parses the requests of a Redis client: arrays of bulk strings (RESP), and inline requests. Does no I/O. Announced
// lengths cost nothing: memory grows with the arguments that have arrived.
class RespParser {
 public:
  explicit RespParser(const RequestLimits& limits = {}) noexcept : limits_(limits) {}

  enum class Event : std::uint8_t {
    more,     // The request is not complete.
    request,  // arguments() has it. It may be empty, and gets no answer then.
    error,    // error_text() says why. Nothing can be parsed after it.
  };
  struct Step {
    Event event;
    std::size_t consumed;  // Bytes of the request; 0 unless event is `request`.
  };
  // `bytes` begins at the first byte of a request. After `more` it is shown again with more bytes behind it, and may
  // lie elsewhere. The work of all calls together is linear in the length of the request.
  Step next(Bytes bytes);

  // Views of the bytes that the last next() was shown, or of memory of the parser. Valid until the next call.
  std::span<const std::string_view> arguments() const noexcept { return arguments_; }
  // As Redis words it, without the prefix "Protocol error: ".
  const std::string& error_text() const noexcept { return error_text_; }
  const RequestLimits& limits() const noexcept { return limits_; }
  // For requests that begin later.
  void set_limits(const RequestLimits& limits) noexcept { limits_ = limits; }
  // True while a request has begun and is not complete.
  bool inside() const noexcept { return at_ != 0 || waiting_; }
  // Bytes of memory for the positions of arguments, and for the words of an inline request.
  std::size_t held_bytes() const noexcept {
    return parts_.capacity() * sizeof(Part) + arguments_.capacity() * sizeof(std::string_view) +
           inline_arguments_.capacity() * sizeof(std::string);
  }

 private:
  struct Part {
    std::uint32_t offset;
    std::uint32_t size;
  };
  Step parse_inline(std::string_view text);
  Step fail(std::string text);
  Step complete(std::string_view text);
  bool split_line(std::string_view line);

  RequestLimits limits_;
  std::size_t at_ = 0;        // Bytes of the request that have been parsed.
  std::size_t searched_ = 0;  // Bytes of an incomplete line in which no end was found.
  std::int64_t arguments_left_ = 0;
  std::int64_t bulk_bytes_ = -1;  // Length of the argument that comes next; -1: its header comes.
  bool waiting_ = false;
  std::vector<Part> parts_;
  std::vector<std::string_view> arguments_;
  std::vector<std::string> inline_arguments_;
  std::string error_text_;
};

}  // namespace hawser::protocol::resp
