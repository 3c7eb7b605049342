#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace hawser {

// What went wrong, named for what the caller should do about it. The values are part of the wire format.
enum class ErrorCode : std::uint16_t {
  ok = 0,                  // Never in an Error; what a successful reply carries on the wire.
  invalid_argument = 1,    // The call itself is wrong: mend it.
  unknown_method = 2,      // The server has no handler of that name: deploy it, or mend the name.
  signature_mismatch = 3,  // Both sides know the method with other types: build both from one header.
  cancelled = 4,           // The caller withdrew the call.
  deadline_exceeded = 5,   // The call's time ran out; it may have been executed.
  overloaded = 6,          // A bound was hit and nothing was executed: wait, then try again.
  not_sent = 7,            // Nothing reached the peer: safe to send again, elsewhere or later.
  outcome_unknown = 8,     // The connection was lost after sending: it may or may not have been executed.
  unavailable = 9,         // No connection could be had, or the server is stopping; nothing was executed.
  protocol_error = 10,     // The peer broke the wire format: see the scope for whether the connection is closed.
  limit_exceeded = 11,     // A message or count passes a configured limit: raise the limit or send less.
  application = 12,        // The handler answered with an error of its own; see Error::application_code.
  internal = 13,           // A bug on the side named by the initiator; report it.
};

// How far the damage reaches.
enum class ErrorScope : std::uint8_t { call, connection, transport };

// Who began it.
enum class Initiator : std::uint8_t { local, peer };

// The stable lower-case name of a code, such as "deadline_exceeded".
std::string_view to_string(ErrorCode code) noexcept;
std::string_view to_string(ErrorScope scope) noexcept;

// An error as a value. Cheap to move; the text is for people and says what to do.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::internal;
  ErrorScope scope = ErrorScope::call;
  Initiator initiator = Initiator::local;
  std::int32_t application_code = 0;  // The handler's own code; meaningful with ErrorCode::application only.
  std::string text;

  // An error that a handler answers with; it reaches the caller as it is.
  static Error application(std::int32_t code, std::string text) {
    return {ErrorCode::application, ErrorScope::call, Initiator::local, code, std::move(text)};
  }

  // True if the call was certainly not executed, so that sending it again is safe.
  bool not_executed() const noexcept {
    return code == ErrorCode::overloaded || code == ErrorCode::not_sent || code == ErrorCode::unavailable ||
           code == ErrorCode::unknown_method || code == ErrorCode::signature_mismatch;
  }

  // One line: code, scope, who began it, text.
  std::string describe() const;

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = std::expected<T, Error>;

// Shorthand for `return fail(ErrorCode::overloaded, "...")` in a function that returns a Result.
inline std::unexpected<Error> fail(ErrorCode code, std::string text, ErrorScope scope = ErrorScope::call,
                                   Initiator initiator = Initiator::local) {
  return std::unexpected(Error{code, scope, initiator, 0, std::move(text)});
}

}  // namespace hawser
