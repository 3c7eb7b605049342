#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "exec/signal.h"
#include "rpc/handshake.h"
#include "rpc/paths.h"
#include "rpc/server_session.h"
#include "transport/network.h"

namespace hawser::rpc {

// What all loops of a server share.
struct ServerShared {
  ServerOptions options;
  std::shared_ptr<transport::Network> network;
  Dispatcher dispatcher;
  std::atomic<std::size_t> connections{0};      // Past the handshake.
  std::atomic<std::size_t> calls_in_flight{0};  // Not answered in place.
};

// The part of a server that lives on one loop: its handshakes and sessions. Loop's thread only.
class ServerLoop final : Handshake::Done, ServerSession::Owner {
 public:
  ServerLoop(Loop& loop, ServerShared& shared)
      : loop_(loop),
        shared_(shared),
        session_shared_{
            .dispatcher = shared.dispatcher, .options = shared.options, .calls_in_flight = shared.calls_in_flight},
        paths_(loop, shared.network->data_paths(shared.options.transports), shared.options.transports),
        changed_(loop) {}
  ~ServerLoop();

  Loop& loop() noexcept { return loop_; }
  const LoopCounters& counters() const noexcept { return session_shared_.counters; }

  // A fresh connection for this loop.
  void adopt(std::unique_ptr<transport::Stream> stream);
  // No new calls; those in flight may finish within `grace`, then they are cancelled, and soon after ended. Completes
  // when no session is left.
  Task<void> shut_down(Duration grace);

  // Gets what the paths beside the stream need; what can't be had is logged.
  void prepare() { paths_.attach(); }

 private:
  // A connection whose hellos are being exchanged.
  struct Arrival {
    std::unique_ptr<Handshake> handshake;
    std::unique_ptr<Proposals> proposals;  // Once the client has offered paths.
    wire::Hello theirs;
    wire::Hello ours;
    bool going = false;  // A path was agreed on; our last hello is leaving.
  };
  using Arrivals = std::list<Arrival>;

  void on_hello(Handshake& handshake, Result<wire::Hello> hello) override;
  void on_sent(Handshake& handshake) override;
  void on_first_hello(Arrivals::iterator arrival);
  void on_answer(Arrivals::iterator arrival, const wire::Hello& answer);
  void propose(Arrivals::iterator arrival);
  void open_path(Arrivals::iterator arrival);
  void on_session_idle(ServerSession& session) override;
  void open_session(Arrivals::iterator arrival, std::unique_ptr<transport::Connection> connection);
  std::optional<Error> refusal(const wire::Hello& theirs) const;
  Arrivals::iterator find(Handshake& handshake);
  Task<bool> wait_empty(Time until);

  Loop& loop_;
  ServerShared& shared_;
  ServerLoopShared session_shared_;
  Paths paths_;
  Arrivals arrivals_;
  std::list<std::unique_ptr<ServerSession>> sessions_;
  bool stopping_ = false;
  exec::Signal changed_;                                          // A session has gone.
  const std::shared_ptr<char> alive_ = std::make_shared<char>();  // Ends with this; seen by what it posted.
};

}  // namespace hawser::rpc
