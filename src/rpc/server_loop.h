#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "exec/signal.h"
#include "rpc/handshake.h"
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
        changed_(loop) {}
  ~ServerLoop();

  Loop& loop() noexcept { return loop_; }
  const LoopCounters& counters() const noexcept { return session_shared_.counters; }

  // A fresh connection for this loop.
  void adopt(std::unique_ptr<transport::Stream> stream);
  // No new calls; those in flight may finish within `grace`, then they are cancelled, and soon after ended. Completes
  // when no session is left.
  Task<void> shut_down(Duration grace);

 private:
  void on_hello(Handshake& handshake, Result<wire::Hello> hello) override;
  void on_session_idle(ServerSession& session) override;
  void open_session(std::unique_ptr<transport::Stream> stream, const wire::Hello& theirs, const wire::Hello& ours);
  std::optional<Error> refusal(const wire::Hello& theirs) const;
  std::unique_ptr<Handshake> remove(Handshake& handshake);
  Task<bool> wait_empty(Time until);

  Loop& loop_;
  ServerShared& shared_;
  ServerLoopShared session_shared_;
  std::list<std::unique_ptr<Handshake>> handshakes_;
  std::list<std::unique_ptr<ServerSession>> sessions_;
  bool stopping_ = false;
  exec::Signal changed_;                                          // A session has gone.
  const std::shared_ptr<char> alive_ = std::make_shared<char>();  // Ends with this; seen by what it posted.
};

}  // namespace hawser::rpc
