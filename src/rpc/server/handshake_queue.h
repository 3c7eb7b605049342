#pragma once

#include <cstddef>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "negotiate/attached_transports.h"
#include "negotiate/handshake.h"
#include "negotiate/server_negotiation.h"
#include "rpc/port/port_protocol.h"

namespace hawser::rpc {

struct ServerShared;

// The fresh connections of one loop, at most ServerOptions::handshakes_max, until each one is a session of the protocol
// that its first bytes name. Loop's thread only.
class HandshakeQueue final : negotiate::Handshake::Done, negotiate::ServerNegotiation::Outcome {
 public:
  // Receives the sessions.
  class Sessions {
   public:
    // Why no connection of any protocol is accepted now.
    virtual std::optional<Error> refusal() const = 0;
    // Adds a session, and returns the work that removes it. start() follows, after the queue has forgotten the
    // connection.
    virtual std::unique_ptr<detail::Posted> add(std::unique_ptr<PortSession> session) = 0;
    virtual void start(PortSession& session, std::unique_ptr<detail::Posted> end) = 0;
    // The last connection has ended without a session. May be called within a function of the queue.
    virtual void on_no_handshakes() noexcept = 0;

   protected:
    ~Sessions() = default;
  };

  // The references outlive this object. `host.options` are the options of this loop.
  HandshakeQueue(PortHost& host, ServerShared& shared, Sessions& sessions);

  // Adds a fresh connection. One that cannot be served is closed.
  void adopt(std::unique_ptr<transport::Stream> stream) noexcept;
  bool empty() const noexcept { return attempts_.empty(); }
  // Closes the connections of which this is the check number `checks_max` without a session.
  void close_old(unsigned checks_max) noexcept {
    std::erase_if(attempts_, [&](Attempt& one) { return ++one.checks >= checks_max; });
  }
  // Closes all connections.
  void clear() noexcept { attempts_.clear(); }
  // Creates the workers of the transports beside the stream. A failure is logged.
  void prepare() { transports_.attach(); }
  // Logs that an exception cost a connection.
  void log_dropped(const std::exception& error) noexcept;

 private:
  struct Attempt {
    std::unique_ptr<negotiate::Handshake> handshake;
    bool secured = false;  // The stream is protected by ServerOptions::security.
    // Non-null after the client's first message, in the library's own protocol.
    std::unique_ptr<negotiate::ServerNegotiation> negotiation = {};
    unsigned checks = 0;  // See close_old().
  };
  using Attempts = std::list<Attempt>;

  // Recognises the other protocols of the server and, unless `security` is null, protected streams.
  class Recogniser final : public negotiate::FirstBytes {
   public:
    Recogniser(const ProtocolList& protocols, const transport::ServerSecurity* security) noexcept
        : protocols_(protocols), security_(security) {}
    Match match(Bytes first) const noexcept override;
    // Null: `first` is that of a protected stream.
    const PortProtocol* protocol_of(Bytes first) const noexcept;

   private:
    const ProtocolList& protocols_;
    const transport::ServerSecurity* const security_;
  };

  void on_hello(negotiate::Handshake& handshake, Result<wire::Hello> hello) override;
  void on_other(negotiate::Handshake& handshake, Bytes first) override;
  void on_sent(negotiate::Handshake& handshake) override;
  void on_agreed(negotiate::ServerNegotiation& negotiation, std::unique_ptr<transport::Connection> connection,
                 std::shared_ptr<const Identity> identity) override;
  void on_refused(negotiate::ServerNegotiation& negotiation, const negotiate::HelloMessage& refusal) override;
  void on_thrown(negotiate::ServerNegotiation& negotiation, const std::exception& thrown) override;

  void admit(std::unique_ptr<transport::Stream> stream);
  bool evict_silent();
  void allow_silence(negotiate::Handshake& handshake) const noexcept;
  void refuse(negotiate::Handshake& handshake, std::string why);
  template <class Step>
  void guard(negotiate::Handshake& handshake, Step step);
  void drop(Attempts::iterator attempt, const std::exception& thrown) noexcept;
  void end_attempt(Attempts::iterator attempt) noexcept;
  void continue_handshake(Attempts::iterator attempt, Result<wire::Hello> hello);
  void end_failed(Attempts::iterator attempt, const Error& why);
  void begin_negotiation(Attempts::iterator attempt, wire::Hello hello);
  const Recogniser& recogniser(const Attempt& attempt) const noexcept { return attempt.secured ? secured_ : plain_; }
  void open_other(Attempts::iterator attempt, Bytes first);
  void open_protocol(Attempts::iterator attempt, const PortProtocol& protocol, Bytes first);
  void begin_session(Attempts::iterator attempt, std::unique_ptr<PortSession> made);
  void protect(Attempts::iterator attempt, Bytes first);
  std::string unknown_answer(Bytes first) const;
  std::optional<Error> refusal(const Attempt& attempt) const;
  std::optional<Error> refusal_of_plain(const Attempt& attempt) const;
  negotiate::ServerSide side(const Attempt& attempt) const;
  template <class Is>
  Attempts::iterator find_newest(Is is);
  Attempts::iterator find(const negotiate::Handshake& handshake);
  Attempts::iterator find(const negotiate::ServerNegotiation& negotiation);
  void log_refusal(const std::string& text);

  PortHost& host_;
  Loop& loop_;
  const ServerOptions& options_;
  ServerShared& shared_;
  Sessions& sessions_;
  const Recogniser plain_;
  const Recogniser secured_;  // For the bytes within a protected stream.
  negotiate::AttachedTransports transports_;
  Attempts attempts_;         // By their accept, or the first byte of TLS.
  Time next_refusal_line_{};  // No refusal is logged before this time.
};

}  // namespace hawser::rpc
