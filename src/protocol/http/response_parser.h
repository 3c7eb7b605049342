#pragma once

#include <string_view>

#include "protocol/http/message_parser.h"

namespace hawser::protocol::http {

// The part of a response before its body.
struct ResponseHead : MessageHead {
  unsigned status = 0;  // From 100 to 999. 600 and above are not defined: like 5xx (RFC 9110, 15).
  std::string_view phrase;
};

// Parses the responses of one connection to its requests, in order.
class ResponseParser final : public MessageParser {
 public:
  explicit ResponseParser(const HttpMessageLimits& limits) noexcept
      : MessageParser(limits, {"the status line is too long", "the status line is empty"}, head_, Faults::tolerated) {}

  const ResponseHead& head() const noexcept { return head_; }
  // The next response answers HEAD: it has no body, whatever its fields say.
  void expect_no_body(bool on) noexcept { no_body_ = on; }
  // The server has ended the stream. True if that completes a response: its body lasts until the end.
  bool end_of_stream() const noexcept { return state() == State::until_end; }

 private:
  bool parse_first_line(std::string_view line) override;
  bool apply_field(const Field&) override { return true; }
  State begin_body() override;

  ResponseHead head_;
  bool no_body_ = false;
};

}  // namespace hawser::protocol::http
