#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::protocol::http {

// The reason phrase of a status code, such as "Not Found".
std::string_view reason_phrase(unsigned status) noexcept;

// The status code for an error of a call.
unsigned status_of(ErrorCode code) noexcept;
// The error of a call, for a client that waits for its response: it has not cancelled the call, so whoever did is the
// server. `late`: the deadline of the request has passed.
Error error_for_client(const Error& error, bool late);
// The code by which the answer of a route is counted.
ErrorCode code_of(int status) noexcept;

// The present time, for the field Date.
std::int64_t unix_seconds_now();
// The value of the field Date.
std::string date_text(std::int64_t unix_seconds);

// The JSON body for an error: {"code":"overloaded","message":"..."}, and "application_code" if it has one.
std::string error_json(const Error& error);

// Writes the heads of responses to text that is reused. No I/O.
class ResponseWriter {
 public:
  // Begins a head: the status line and the field Date. `unix_seconds` is the present time.
  void begin(unsigned status, unsigned minor, std::int64_t unix_seconds);
  // Adds a field. Left out if the name is not a token, the value has a control character, or this class writes the
  // field itself (Content-Length, Transfer-Encoding, Connection, Date).
  void add(std::string_view name, std::string_view value);
  void add_type(std::string_view type);
  // Completes the head of a response whose body has that length.
  void end(std::uint64_t content_length, bool keep_alive);
  // Completes the head of a response that has no body by its status.
  void end_bare(bool keep_alive) { add_connection(keep_alive); }
  // Completes the head of a response whose body is chunked.
  void end_chunked(bool keep_alive);
  std::string_view text() const noexcept { return text_; }

 private:
  void add_connection(bool keep_alive);

  std::string text_;
  unsigned minor_ = 1;
  std::int64_t date_seconds_ = -1;
  std::string date_;
};

// The line before a chunk of `bytes` bytes; the chunk and CRLF follow.
std::string chunk_head(std::size_t bytes);
inline constexpr std::string_view last_chunk = "0\r\n\r\n";

}  // namespace hawser::protocol::http
