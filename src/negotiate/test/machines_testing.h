#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "negotiate/client_machine.h"
#include "negotiate/server_machine.h"

namespace hawser::negotiate {

inline std::vector<std::byte> octets(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}
inline wire::NamedBytes offer_of(const std::string& name) { return {name, octets("offer of " + name)}; }
inline std::unexpected<Error> no_half() { return fail(Error::of_transport(ErrorCode::unavailable, "not here")); }

inline Terms client_terms() {
  return {.checksum = true, .memory = true, .message_bytes_max = 5000, .calls_max = 30, .stream_window_bytes = 700};
}
inline Terms server_terms() {
  return {.checksum = true, .message_bytes_max = 4000, .calls_max = 20, .stream_window_bytes = 900};
}
inline FirstHello first_hello(std::vector<wire::NamedBytes> offers = {offer_of("a"), offer_of("b")}) {
  return {.terms = client_terms(), .offers = std::move(offers)};
}
inline SelectionHello selection_of(const std::string& name) {
  return {.terms = server_terms(), .selected = wire::NamedBytes{name, octets("server's half")}};
}

// Yes or no, as a list says; "no" behind its end. advance() goes on to the next list, until all were used.
class Choices {
 public:
  bool next() {
    if (at_ == taken_.size()) taken_.push_back(false);
    return taken_[at_++];
  }
  bool advance() {
    at_ = 0;
    while (!taken_.empty() && taken_.back()) taken_.pop_back();
    if (taken_.empty()) return false;
    return taken_.back() = true;
  }

 private:
  std::vector<bool> taken_;
  std::size_t at_ = 0;
};

// Both machines, connected without a network: `choices` decides whether each step of a transport works. Every message
// travels as the bytes of a HELLO.
class ConnectedMachines {
 public:
  ConnectedMachines(ClientSide client_side, ServerSide server_side, Choices& choices)
      : client(std::move(client_side)), server(std::move(server_side)), choices_(choices) {}

  void run() {
    std::optional<HelloMessage> from_client = of_client(client.start());
    bool first = true;
    while (from_client) {
      const wire::Hello hello = carried(*from_client);
      const std::optional<HelloMessage> from_server =
          of_server(server.on_message(std::exchange(first, false) ? HelloMessage(first_of(hello)) : answer_of(hello)));
      if (!from_server) return;
      from_client = of_client(client.on_message(server_message_of(carried(*from_server))));
    }
  }

  ClientMachine client;
  ServerMachine server;
  std::vector<std::string> tried;     // Transports of which the server tried to make a half.
  std::vector<std::string> declined;  // Transports that the server declined, in the order of the messages.
  std::optional<Action> client_end;   // The last action of each side.
  std::optional<Action> server_end;

 private:
  static wire::Hello carried(const HelloMessage& message) {
    const Result<wire::Hello> hello = wire::decode_hello(wire::encode_hello(to_hello(message)));
    EXPECT_TRUE(hello) << hello.error().text;
    return hello.value_or(wire::Hello());
  }
  Result<std::vector<std::byte>> half(const std::string& text) {
    if (!choices_.next()) return no_half();
    return octets(text);
  }
  std::optional<HelloMessage> of_client(Action action) {
    if (const MakeHalf* const make = std::get_if<MakeHalf>(&action)) {
      EXPECT_EQ(make->from, octets("server's " + make->transport));
      action = client.on_half(half("client's " + make->transport));
    }
    if (SendHello* const send = std::get_if<SendHello>(&action)) return std::move(send->message);
    client_end = std::move(action);
    return std::nullopt;
  }
  std::optional<HelloMessage> of_server(Action action) {
    std::optional<HelloMessage> message = message_of_server(std::move(action));
    if (const SelectionHello* const selection = message ? std::get_if<SelectionHello>(&*message) : nullptr) {
      for (const wire::NamedBytes& one : selection->declined) declined.push_back(one.name);
    }
    return message;
  }
  std::optional<HelloMessage> message_of_server(Action action) {
    for (;;) {
      if (const MakeHalf* const make = std::get_if<MakeHalf>(&action)) {
        EXPECT_EQ(make->from, offer_of(make->transport).bytes);
        tried.push_back(make->transport);
        action = server.on_half(half("server's " + make->transport));
      } else if (const ConnectHalf* const connect = std::get_if<ConnectHalf>(&action)) {
        EXPECT_EQ(connect->to, octets("client's " + tried.back()));
        action = server.on_connected(choices_.next() ? Result<void>() : no_half());
      } else {
        break;
      }
    }
    if (SendHello* const send = std::get_if<SendHello>(&action)) return std::move(send->message);
    server_end = std::move(action);
    return std::visit(
        [](const auto& end) -> std::optional<HelloMessage> {
          if constexpr (requires { end.last; }) {
            return end.last;
          } else {
            return std::nullopt;
          }
        },
        *server_end);
  }

  Choices& choices_;
};

}  // namespace hawser::negotiate
