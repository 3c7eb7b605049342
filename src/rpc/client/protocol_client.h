#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/client.h"
#include "hawser/detail/call_channel.h"
#include "hawser/detail/loop_access.h"
#include "hawser/scope.h"
#include "hawser/transport/stream.h"
#include "rpc/client/connection_link.h"

namespace hawser::rpc {

// The client's end of one connection that speaks another protocol than the library's own. Loop's thread only.
class ProtocolSession : public detail::CallChannel {
 public:
  class Owner {
   public:
    // The connection has ended, and every call has been completed. Called once.
    virtual void on_session_end(const Error& reason) = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~ProtocolSession() = default;
  // Called once, when calls may be made.
  virtual void begin() = 0;
  // Ends the connection at once.
  virtual void end(const Error& reason) = 0;
  virtual std::size_t calls_in_flight() const noexcept = 0;
};

// State of a client of another protocol: connects, and lets the calls of a Client go through its session. It lives as
// long as the client, and longer while connect() runs. Loop's thread only, except for the constructor.
class ProtocolClient : ProtocolSession::Owner, detail::LoopUser, public std::enable_shared_from_this<ProtocolClient> {
 public:
  // `loop` may be null: the first connect() then sets it. `security` may be null: plain text. `alpn` is the name of the
  // protocol in ALPN, a literal; empty: it has none. `protocol` is its name for interceptors, a literal.
  ProtocolClient(Loop* loop, Duration connect_timeout, std::shared_ptr<transport::ClientSecurity> security,
                 std::string_view alpn, std::string_view protocol);
  ProtocolClient(const ProtocolClient&) = delete;
  ProtocolClient& operator=(const ProtocolClient&) = delete;

  // Lets `calls`, which is never connected itself, make its calls through this object.
  void attach(Client& calls);

  Task<Result<void>> connect(std::string address);
  // Ends the connection or the attempt to connect.
  void close(std::string why);

  bool connected() const noexcept { return link_.channel != nullptr; }
  std::size_t calls_in_flight() const noexcept { return session_ == nullptr ? 0 : session_->calls_in_flight(); }

 protected:
  virtual ~ProtocolClient();
  // Returns the session of a connected stream. It is begun afterwards.
  virtual std::shared_ptr<ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                                const std::string& address, ProtocolSession::Owner& owner) = 0;
  ProtocolSession* session() const noexcept { return session_.get(); }

 private:
  void on_session_end(const Error& reason) override;
  void on_loop_end() noexcept override;
  static Task<Result<void>> connect_to(std::shared_ptr<ProtocolClient> client, std::string address);
  struct Attempt;
  Task<void> attempt(std::shared_ptr<Attempt> own);

  const Duration connect_timeout_;
  const std::shared_ptr<transport::ClientSecurity> security_;
  const std::string_view alpn_;
  Loop* loop_;
  bool uses_loop_ = false;
  std::shared_ptr<Attempt> connecting_;  // The result of connect(), which waits for it.
  bool closed_ = false;                  // close() was called while connecting.
  std::shared_ptr<transport::Network> network_;
  std::string address_;  // The argument of the last connect().
  ConnectionLink link_;
  std::shared_ptr<ProtocolSession> session_;
  Scope scope_;  // Has the attempt to connect.
};

}  // namespace hawser::rpc
