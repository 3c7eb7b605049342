#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hawser/error.h"
#include "wire/frame.h"
#include "wire/hello.h"

// The messages by which two peers agree on a connection (docs/wire-format.md, "Hello"). On the wire each of them is a
// HELLO. Its kind follows from the sender, from the fields, and from the messages before it.
namespace hawser::negotiate {

// The requests and limits of one side. A limit holds for what this side receives.
struct Terms {
  bool checksum = false;              // Client: requests checksums. Server: grants them.
  bool memory = false;                // This side serves MEMORY frames.
  std::size_t message_bytes_max = 0;  // The longest message with its prefix. On the wire at most UINT32_MAX.
  // The most calls in flight. A client does not send its own limit, because it makes the calls.
  std::size_t calls_max = std::numeric_limits<std::size_t>::max();
  std::uint32_t stream_window_bytes = 0;  // Window that this side grants to each stream at its start.
  std::uint8_t protection = 0;            // transport::PathProtection that this side demands. 0: not within TLS.

  friend bool operator==(const Terms&, const Terms&) = default;
};

// Client, first: its terms, and the transports that it offers.
struct FirstHello {
  std::uint8_t version_min = wire::version;
  std::uint8_t version_max = wire::version;
  Terms terms = {};
  std::vector<wire::NamedBytes> offers = {};

  friend bool operator==(const FirstHello&, const FirstHello&) = default;
};

// Server: the transport to try, or none: then the byte stream carries the messages, which begin behind this one. Only
// the terms of the first one count.
struct SelectionHello {
  std::uint8_t version_min = wire::version;
  std::uint8_t version_max = wire::version;
  Terms terms = {};
  std::optional<wire::NamedBytes> selected = {};  // With the parameters of the server's half.
  std::vector<wire::NamedBytes> declined = {};    // With the reasons. Each transport in one message only.

  friend bool operator==(const SelectionHello&, const SelectionHello&) = default;
};

// Client, after a selection: the parameters of its half, or the reason why it has none.
struct AnswerHello {
  std::expected<std::vector<std::byte>, std::string> half = {};

  friend bool operator==(const AnswerHello&, const AnswerHello&) = default;
};

// Server: both halves are connected, and carry the messages from now on.
struct ReadyHello {
  friend bool operator==(const ReadyHello&, const ReadyHello&) = default;
};

// Server: it refuses the connection, and closes the byte stream afterwards.
struct RefusalHello {
  Error why = {};

  friend bool operator==(const RefusalHello&, const RefusalHello&) = default;
};

using HelloMessage = std::variant<FirstHello, SelectionHello, AnswerHello, ReadyHello, RefusalHello>;

// "a selection", for errors. A literal.
std::string_view name_of(const HelloMessage& message) noexcept;

wire::Hello to_hello(const HelloMessage& message);
// The first message of a client, and its later ones. Fields that have no meaning there are ignored.
FirstHello first_of(wire::Hello hello);
AnswerHello answer_of(wire::Hello hello);
// Any message of a server: a refusal, else ready, else a selection.
HelloMessage server_message_of(wire::Hello hello);

}  // namespace hawser::negotiate
