#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ascii_case.h"
#include "hawser/bytes.h"

namespace hawser::protocol::http {

struct Field {
  std::string_view name;  // As it was sent.
  std::string_view value;
};

// The part of a message before its body. The views refer to the bytes that were shown to the parser.
struct MessageHead {
  unsigned minor = 1;  // HTTP/1.minor: 0 or 1.
  std::vector<Field> fields;
  std::uint64_t content_length = 0;  // 0 if chunked.
  bool has_content_length = false;
  bool chunked = false;
  bool keep_alive = true;

  // Returns the value of the first field of that name, compared without case; nothing if there is none.
  std::optional<std::string_view> field(std::string_view name) const noexcept;
  bool has_body() const noexcept { return chunked || content_length != 0; }
};

// A character of a method or a field name (RFC 9110, 5.6.2).
bool is_token_character(char c) noexcept;
bool is_token(std::string_view text) noexcept;
// A character of a field's value.
bool is_value_character(char c) noexcept;

struct HttpMessageLimits {
  std::size_t line_bytes_max = 8 * 1024;   // The first line, one field, one chunk's size with its extensions.
  std::size_t head_bytes_max = 32 * 1024;  // The first line with all fields; also all trailer fields of a body.
  std::size_t fields_max = 100;
  std::uint64_t body_bytes_max = std::uint64_t{64} << 20;
  std::size_t chunk_extension_bytes_max = 1024;  // All chunks of one body together.
};

// Parses the messages of one direction of a connection (RFC 9112). It refuses what two parsers could read differently:
// a bare LF, folded fields, space before a colon, two lengths, a length beside Transfer-Encoding, and codings other
// than chunked. The same length twice is one, but the connection is not used again (RFC 9110, 8.6).
// With Faults::tolerated, lines of the head may end with a bare LF, and Transfer-Encoding replaces a length (RFC 9112,
// 2.2 and 6.3). The connection is not used again then, so no other message can be read wrongly.
// No I/O; the same bytes give the same events.
class MessageParser {
 public:
  enum class Event : std::uint8_t {
    more,   // The bytes are not a complete unit: call again with the bytes that were not consumed and further ones.
    head,   // The head is valid while the bytes of this call are.
    body,   // `data` is the next part of the body.
    end,    // The message is complete. The next bytes begin another one.
    error,  // status() and reason() describe it. Nothing can be parsed any more.
  };
  struct Step {
    Event event = Event::more;
    std::size_t consumed = 0;
    Bytes data = {};
  };
  // Parses one unit at the front of `in`. After `head`, the body follows, also if it is empty: `end` then consumes
  // nothing.
  Step next(Bytes in);

  // `bytes` bytes of the body, at most body_left(), were received without being shown to next().
  void skip_body(std::uint64_t bytes) noexcept { left_ -= bytes; }
  // Bytes of the body that are still to come; of a chunked body, of the present chunk.
  std::uint64_t body_left() const noexcept { return left_; }
  // True between messages: no byte of the next one has been consumed or scanned.
  bool idle() const noexcept { return state_ == State::head && scanned_ == 0; }

  unsigned status() const noexcept { return status_; }  // The status code of the answer to the error of a request.
  const std::string& reason() const noexcept { return reason_; }

  enum class Faults : std::uint8_t { refused, tolerated };

 protected:
  enum class State : std::uint8_t { head, body, chunk_size, chunk_data, chunk_end, trailer, until_end, failed };
  struct FirstLine {
    std::string_view too_long;
    std::string_view empty;
  };

  // `head` is filled and outlives the parser's use.
  MessageParser(const HttpMessageLimits& limits, const FirstLine& first_line, MessageHead& head, Faults faults) noexcept
      : limits_(limits), first_line_(first_line), head_(head), faults_(faults) {}
  ~MessageParser() = default;

  // Each returns false after fail().
  virtual bool parse_first_line(std::string_view line) = 0;
  // Applies a field that is not Connection, Content-Length or Transfer-Encoding, of a name of 4 or 6 characters.
  virtual bool apply_field(const Field& field) = 0;
  // All fields have been applied. Returns the state in which the body is parsed.
  virtual State begin_body() = 0;

  Step fail(unsigned status, std::string reason);
  // fail() for functions that return false then.
  bool refuse(unsigned status, std::string reason) {
    fail(status, std::move(reason));
    return false;
  }
  // Parses "HTTP/1.0" or "HTTP/1.1".
  bool parse_version(std::string_view version);
  State state() const noexcept { return state_; }
  std::uint64_t body_bytes_max() const noexcept { return limits_.body_bytes_max; }

 private:
  // fail() for a line of `bytes` bytes, and for a body.
  Step refuse_line(unsigned status, std::string_view what, std::size_t bytes);
  Step refuse_body(std::uint64_t bytes);
  Step parse_head(std::string_view in);
  Step parse_lines(std::string_view rest, std::size_t end);
  bool parse_field(std::string_view line, Field& field);
  bool apply_fields();
  bool apply_length(std::string_view value);
  bool apply_lengths(std::string_view values);
  bool apply_connection(std::string_view value);
  Step parse_chunk_size(std::string_view in);
  Step parse_trailer(std::string_view in);
  Step take_body(Bytes in, State after);
  Step take_until_end(Bytes in);
  Step end();
  // Returns the line at the front of `in`, without its end; nothing if it is not complete or wrong (then failed).
  std::optional<std::string_view> take_line(std::string_view in);

  const HttpMessageLimits limits_;
  const FirstLine first_line_;
  MessageHead& head_;
  const Faults faults_;
  bool ambiguous_ = false;  // The head has a fault that is tolerated.
  State state_ = State::head;
  std::size_t scanned_ = 0;     // Bytes of an incomplete head in which no end was found.
  std::size_t line_begin_ = 0;  // Begin of the head's line at scanned_.
  std::uint64_t left_ = 0;
  std::uint64_t body_bytes_ = 0;  // Bytes so far of a body that is chunked or lasts until the end of the stream.
  std::size_t extension_bytes_ = 0;
  std::size_t trailer_bytes_ = 0;
  std::size_t trailer_fields_ = 0;
  unsigned status_ = 0;
  std::string reason_;
};

}  // namespace hawser::protocol::http
