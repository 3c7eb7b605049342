#pragma once

#include <cstdint>
#include <string_view>

#include "kv/password_gate.h"
#include "protocol/resp/request_parser.h"

namespace hawser::kv {

// Whether one client of Redis has authenticated, and the limits of its requests until then and after that. Loop's
// thread only.
class ClientLogin {
 public:
  enum class Answer : std::uint8_t { accepted, wrong, one_too_many };

  // `limits`: of a client that has authenticated. `gate` outlives the login, or is null: the server has no password.
  ClientLogin(PasswordGate* gate, const protocol::resp::RequestLimits& limits) noexcept
      : gate_(gate), limits_(limits), authenticated_(gate == nullptr) {}

  bool authenticated() const noexcept { return authenticated_; }
  // Null: the server has no password.
  PasswordGate* gate() const noexcept { return gate_; }
  // The limits of its next request.
  protocol::resp::RequestLimits limits() const noexcept {
    return authenticated_ ? limits_ : limits_.before_authentication();
  }

  // Without a password, the only user may send anything. A client that has authenticated keeps that when it sends a
  // wrong password later.
  Answer authenticate(std::string_view user, std::string_view password) noexcept {
    if (user == PasswordGate::user && (gate_ == nullptr || gate_->matches(password))) {
      authenticated_ = true;
      return Answer::accepted;
    }
    if (gate_ == nullptr) return Answer::wrong;
    gate_->count_wrong();
    return ++wrong_passwords_ < PasswordGate::wrong_max ? Answer::wrong : Answer::one_too_many;
  }
  // RESET. The wrong passwords still count.
  void end() noexcept { authenticated_ = gate_ == nullptr; }

 private:
  PasswordGate* const gate_;
  const protocol::resp::RequestLimits limits_;
  bool authenticated_;
  unsigned wrong_passwords_ = 0;
};

}  // namespace hawser::kv
