#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "base/alive.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/timer.h"
#include "negotiate/attached_transports.h"
#include "negotiate/handshake.h"
#include "negotiate/server_machine.h"
#include "transport/stream_security.h"

namespace hawser::negotiate {

// The server's side of the agreement on one connection: performs the actions of a ServerMachine over the stream of a
// handshake and the transports of one loop. Loop's thread only.
class ServerNegotiation {
 public:
  // Each function may destroy the negotiation, and is called at most once.
  class Outcome {
   public:
    // The connection that carries the messages has been made from the stream of the handshake, which had this identity.
    virtual void on_agreed(ServerNegotiation& negotiation, std::unique_ptr<transport::Connection> connection,
                           std::shared_ptr<const Identity> identity) = 0;
    // The client is to be refused. `refusal` has not been sent.
    virtual void on_refused(ServerNegotiation& negotiation, const HelloMessage& refusal) = 0;
    // A step has thrown, because no memory or no descriptors are left.
    virtual void on_thrown(ServerNegotiation& negotiation, const std::exception& thrown) = 0;

   protected:
    ~Outcome() = default;
  };

  // The references outlive this object. `security` is null outside TLS.
  ServerNegotiation(Loop& loop, AttachedTransports& transports, Handshake& handshake,
                    transport::ServerSecurity* security, ServerSide side, Outcome& outcome);

  // The client's first message. May throw; the other functions do not.
  void begin(FirstHello first);
  void on_answer(AnswerHello answer);
  // The stream has accepted all that was sent.
  void on_sent();

  const ServerMachine& machine() const noexcept { return machine_; }
  // A path carries the messages, and not the stream.
  bool on_path() const noexcept { return !machine_.transport().empty(); }
  // For a path within TLS, once it was agreed on; otherwise null.
  std::unique_ptr<transport::PathProof> take_proof() noexcept { return std::move(path_.proof); }

 private:
  enum class Step : std::uint8_t { none, making, connecting, leaving };

  void perform(Action action);
  void make_half(const MakeHalf& half);
  void connect_half(const ConnectHalf& half);
  void on_step(const Result<void>& outcome);
  Result<void> secure_path();
  void decline(const std::string& why);
  void give_up();
  void on_timer() noexcept;
  void open_path();
  void open_stream(const HelloMessage& last);
  template <class Work>
  void guard(Work work);

  Loop& loop_;
  AttachedTransports& transports_;
  Handshake& handshake_;
  transport::ServerSecurity* const security_;
  Outcome& outcome_;
  ServerMachine machine_;
  const std::string local_;  // The stream's local address.
  // `making` and `connecting`: pending_ works, and the timer runs. `leaving`: the last message is being sent.
  Step step_ = Step::none;
  std::unique_ptr<transport::PendingConnection> pending_;  // The server's half of the path that is being tried.
  transport::PathSecurity path_;
  MemberTimer<&ServerNegotiation::on_timer> timer_{*this};
  const Alive<ServerNegotiation> alive_{*this};
};

}  // namespace hawser::negotiate
