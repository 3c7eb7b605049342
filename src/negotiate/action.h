#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hawser/error.h"
#include "negotiate/messages.h"

namespace hawser::negotiate {

// A machine returns one of these as its next step. The driver performs it and calls the named function of the machine
// with the outcome.

// Make this side's half of a path over `transport` from the peer's bytes: a server from the client's offer, a client
// from the server's parameters, connected to them. on_half() gets the parameters of the half, or why there is none.
struct MakeHalf {
  std::string transport;
  std::vector<std::byte> from;
};

// Server: connect its half to the client's, which has these parameters, and secure the path. on_connected() gets the
// outcome.
struct ConnectHalf {
  std::vector<std::byte> to;
};

// Send the message. on_message() gets the peer's next one.
struct SendHello {
  HelloMessage message;
};

// The end: send the last message, if there is one; then both halves carry the messages.
struct OpenPath {
  std::optional<HelloMessage> last = {};
};

// The end: send the last message, if there is one; then the byte stream carries the messages.
struct OpenStream {
  std::optional<HelloMessage> last = {};
};

// The end: send the last message, if there is one; then close the byte stream, for this reason.
struct EndNegotiation {
  Error why;
  std::optional<HelloMessage> last = {};
};

using Action = std::variant<MakeHalf, ConnectHalf, SendHello, OpenPath, OpenStream, EndNegotiation>;

}  // namespace hawser::negotiate
