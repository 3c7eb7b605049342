#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/transports.h"
#include "negotiate/action.h"
#include "negotiate/messages.h"
#include "negotiate/settle.h"
#include "transport/path_proof.h"

namespace hawser::negotiate {

// A client's part in one connection, as the machine needs it.
struct ClientSide {
  Terms terms = {};                                 // `protection` is not 0 within TLS.
  std::vector<wire::NamedBytes> offers = {};        // Each name once.
  std::vector<TransportFallback> not_offered = {};  // The client's other transports, with the reasons.
};

// The client's side of the agreement on one connection. No I/O, no clock: the same calls give the same actions.
class ClientMachine {
 public:
  explicit ClientMachine(ClientSide ours);

  // The first action, which sends the client's first message.
  Action start() const;
  // A message that does not belong to the present state ends the negotiation.
  Action on_message(HelloMessage message);
  // After MakeHalf.
  Action on_half(Result<std::vector<std::byte>> parameters);

  const std::vector<wire::NamedBytes>& offers() const noexcept { return ours_.offers; }
  // The transport that the server selected last. Empty: the byte stream.
  const std::string& transport() const noexcept { return transport_; }
  // The parameters of the server's half of that path.
  const std::vector<std::byte>& server_half() const noexcept { return server_half_; }
  // The terms of that path, which both sides know. The views are valid until the next call of the machine.
  transport::PathTerms path_terms() const noexcept;
  // Valid after the server's first selection; final after the end.
  const Agreement& agreed() const noexcept { return agreed_; }
  // Why the client's transports do not carry the connection.
  const std::vector<TransportFallback>& fallback_reasons() const noexcept { return reasons_; }

 private:
  // `answered`: the client has a half of the selected path. `declined`: it has none.
  enum class State : std::uint8_t { greeting, making, answered, declined, ended };

  Action on_selection(SelectionHello selection);
  Action on_ready();
  Action answer(AnswerHello answer);
  Action end(Error why);
  Action violation(const std::string& text);
  void set_reason(std::string_view transport, std::string_view reason);

  State state_ = State::greeting;
  const ClientSide ours_;
  Agreement agreed_;
  std::vector<std::string> left_;  // Offered transports that the server has not selected.
  std::string transport_;
  std::string path_refusal_;            // Why no path may be used. Empty: paths may.
  std::vector<std::byte> server_half_;  // The parameters of the halves for transport_.
  std::vector<std::byte> own_half_;
  std::vector<TransportFallback> reasons_;  // One for each transport of the client that does not carry the connection.
};

}  // namespace hawser::negotiate
