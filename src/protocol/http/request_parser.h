#pragma once

#include <string_view>

#include "protocol/http/message_parser.h"

namespace hawser::protocol::http {

// The part of a request before its body.
struct RequestHead : MessageHead {
  std::string_view method;
  std::string_view target;  // As it was sent.
  std::string_view path;    // The target without the query.
  std::string_view query;   // Without '?'.
  bool expects_continue = false;
};

// Parses the requests of one connection. It refuses requests that could be smuggled past a proxy.
class RequestParser final : public MessageParser {
 public:
  explicit RequestParser(const HttpMessageLimits& limits) noexcept
      : MessageParser(limits, {"the request line is too long", "the request line is empty"}, head_, Faults::refused) {}

  const RequestHead& head() const noexcept { return head_; }

 private:
  bool parse_first_line(std::string_view line) override;
  bool apply_field(const Field& field) override;
  State begin_body() override;
  bool parse_target();

  RequestHead head_;
  bool host_ = false;           // The field Host has come.
  std::string_view authority_;  // The authority of a target in absolute form, if it has that.
};

// True for a target without spaces and control characters that is UTF-8. Other characters than those of RFC 3986 are
// accepted, since clients send them; nothing is decoded.
bool is_target(std::string_view target) noexcept;
// True for a value of the field Host without characters that divide it from others or from a path, or that no host has.
// Empty too.
bool is_host_field(std::string_view value) noexcept;

}  // namespace hawser::protocol::http
