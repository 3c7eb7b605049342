#pragma once

#include <stop_token>

namespace hawser::detail {

// A member of a client. Its token is stopped when the destruction of the client begins, for what must not use the
// client any more. For the thread of the client. It allocates when token() is first called.
class DestructionNotice {
 public:
  DestructionNotice() noexcept = default;
  DestructionNotice(const DestructionNotice&) = delete;
  DestructionNotice& operator=(const DestructionNotice&) = delete;

  std::stop_token token() {
    if (!source_.stop_possible()) source_ = std::stop_source();
    return source_.get_token();
  }
  // The first statement of the client's destructor.
  void send() noexcept { source_.request_stop(); }

  // The token of a client, or one that is never stopped if the client has none.
  template <class Client>
  static std::stop_token of(Client& client) {
    if constexpr (requires { client.destruction_token(); }) {
      return client.destruction_token();
    } else {
      return {};
    }
  }

 private:
  std::stop_source source_{std::nostopstate};
};

}  // namespace hawser::detail
