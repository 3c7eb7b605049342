#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/detail/language.h"  // First of the library's headers.
#include "hawser/time.h"

namespace hawser {

// Kind of an error, named for the caller's remedy. The values are part of the wire format.
enum class ErrorCode : std::uint16_t {
  ok = 0,                  // Never in an Error. A successful reply carries it on the wire.
  invalid_argument = 1,    // The call itself is wrong: correct it.
  unknown_method = 2,      // The server has no handler of that name: register it, or correct the name.
  signature_mismatch = 3,  // The two sides declare the method with different types: build both from one header.
  cancelled = 4,           // The caller cancelled the call.
  deadline_exceeded = 5,   // The call's deadline has passed. The call may have been executed.
  overloaded = 6,          // A bound was reached and nothing was executed: wait, then try again.
  not_sent = 7,            // Nothing reached the peer: the call may be sent again, now or later.
  outcome_unknown = 8,     // The connection was lost after the request was sent. The call may have been executed.
  unavailable = 9,         // There is no connection, or the server is stopping. Nothing was executed.
  protocol_error = 10,     // The peer violated the protocol. The scope shows whether the connection has ended.
  limit_exceeded = 11,     // A message or a count exceeds a configured limit: raise the limit or send less.
  application = 12,        // The handler returned an error of its own; see Error::application_code.
  internal = 13,           // A bug on the side that `initiator` names: report it.
  stale_handle = 14,       // The memory of a RemoteRegion is not exposed any more: ask its owner for a new handle.
  permission_denied = 15,  // The caller may not do this. Another attempt fails in the same way.
  unauthenticated = 16,    // The caller has not proved who it is: send a valid credential.
};

// The part that an error affects.
enum class ErrorScope : std::uint8_t { call, connection, transport };

// The side that caused an error.
enum class Initiator : std::uint8_t { local, peer };

// The name of a code, such as "deadline_exceeded". It is lower-case and does not change between versions.
std::string_view to_string(ErrorCode code) noexcept;
std::string_view to_string(ErrorScope scope) noexcept;

// An error as a value. Cheap to move. The text is for people and names the remedy.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::internal;
  ErrorScope scope = ErrorScope::call;
  Initiator initiator = Initiator::local;
  std::int32_t application_code = 0;  // The handler's own code. Used with ErrorCode::application only.
  std::string text;
  // The pause that the server asks for before another attempt; negative: it forbids one. Over gRPC
  // (grpc-retry-pushback-ms). Empty: it has asked for none.
  std::optional<Duration> retry_after = {};

  // Makers, named for the scope of the error: Error::of_call(ErrorCode::overloaded, "no room: call again later").
  // This side is the initiator, unless the first argument says otherwise.
  static Error of_call(Initiator initiator, ErrorCode code, std::string text) {
    return {code, ErrorScope::call, initiator, 0, std::move(text)};
  }
  static Error of_call(ErrorCode code, std::string text) { return of_call(Initiator::local, code, std::move(text)); }
  static Error of_connection(Initiator initiator, ErrorCode code, std::string text) {
    return {code, ErrorScope::connection, initiator, 0, std::move(text)};
  }
  static Error of_connection(ErrorCode code, std::string text) {
    return of_connection(Initiator::local, code, std::move(text));
  }
  static Error of_transport(Initiator initiator, ErrorCode code, std::string text) {
    return {code, ErrorScope::transport, initiator, 0, std::move(text)};
  }
  static Error of_transport(ErrorCode code, std::string text) {
    return of_transport(Initiator::local, code, std::move(text));
  }

  // An error that a handler returns. It reaches the caller unchanged.
  static Error application(std::int32_t code, std::string text) {
    return {ErrorCode::application, ErrorScope::call, Initiator::local, code, std::move(text)};
  }

  // True if the call was certainly not executed, so that it may be sent again.
  bool not_executed() const noexcept {
    return code == ErrorCode::overloaded || code == ErrorCode::not_sent || code == ErrorCode::unavailable ||
           code == ErrorCode::unknown_method || code == ErrorCode::signature_mismatch;
  }

  // One line with code, scope, initiator and text.
  std::string describe() const;

  friend bool operator==(const Error&, const Error&) = default;
};

template <class T>
using Result = std::expected<T, Error>;

// An error as the outcome of a function that returns a Result: `return fail(Error::of_transport(...))`.
inline std::unexpected<Error> fail(Error error) { return std::unexpected(std::move(error)); }

// Shorthand for `return fail(Error::of_call(ErrorCode::overloaded, "..."))`.
inline std::unexpected<Error> fail(ErrorCode code, std::string text) {
  return fail(Error::of_call(code, std::move(text)));
}

}  // namespace hawser
