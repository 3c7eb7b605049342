#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "negotiate/action.h"
#include "negotiate/messages.h"
#include "negotiate/settle.h"
#include "transport/path_proof.h"

namespace hawser::negotiate {

// A server's part in one connection, as the machine needs it.
struct ServerSide {
  Terms terms = {};                               // `protection` is not 0 within TLS.
  std::optional<Error> refusal = {};              // Why it accepts no connection now.
  std::string_view stream_only = {};              // Why only the byte stream may carry the messages. A literal.
  std::vector<std::string_view> transports = {};  // In the order in which they are tried. Literals.
};

// The server's side of the agreement on one connection. It tries each of its transports at most once, in its order, and
// then leaves the messages to the byte stream. No I/O, no clock: the same calls give the same actions.
class ServerMachine {
 public:
  explicit ServerMachine(ServerSide ours);

  // A message that does not belong to the present state ends the negotiation.
  Action on_message(HelloMessage message);
  // After MakeHalf.
  Action on_half(Result<std::vector<std::byte>> parameters);
  // After ConnectHalf.
  Action on_connected(const Result<void>& outcome);

  // The transport that is being tried, or that was agreed on. Empty: the byte stream.
  std::string_view transport() const noexcept { return transport_; }
  // The terms of that path, which both sides know. The views are valid until the next call of the machine.
  transport::PathTerms path_terms() const noexcept;
  // Valid after the client's first message; final after the end.
  const Agreement& agreed() const noexcept { return agreed_; }
  // Transports that the client offered and that do not carry the connection, except those that TLS excludes.
  std::size_t failures() const noexcept { return failures_; }
  // "name: reason" of each transport that was not used, also of those that the client did not offer. At most
  // reasons_max, each of at most reason_bytes_max.
  static constexpr std::size_t reasons_max = 6;
  static constexpr std::size_t reason_bytes_max = 160;
  const std::vector<std::string>& reasons() const noexcept { return reasons_; }

 private:
  enum class State : std::uint8_t { greeting, making, selected, connecting, ended };

  Action on_first(FirstHello first);
  Action on_answer(AnswerHello answer);
  Action next();
  Action without_path();
  Action end(Error why);
  std::optional<Error> refusal_of(const FirstHello& first) const;
  const wire::NamedBytes* offer() const noexcept;
  void note(std::string_view reason);
  void failed(const std::string& reason);

  State state_ = State::greeting;
  ServerSide ours_;
  Agreement agreed_;
  std::vector<wire::NamedBytes> offers_;    // The client's.
  std::size_t next_ = 0;                    // The index of the next transport to try.
  std::string_view transport_;              // One of ours, or of offers_.
  std::vector<std::byte> half_;             // The parameters of our half for transport_, while the client has them.
  std::vector<std::byte> answer_;           // The parameters of the client's half.
  std::vector<wire::NamedBytes> declined_;  // No message has reported them yet.
  std::size_t failures_ = 0;
  std::vector<std::string> reasons_;
};

}  // namespace hawser::negotiate
