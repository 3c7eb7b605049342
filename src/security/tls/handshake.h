#pragma once

#include <functional>
#include <memory>

#include "exec/offload_pool.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "security/tls/session.h"
#include "security/tls/shared.h"

namespace hawser::security::tls {

// The handshake of one stream, step by step, and then its session. A step runs on the loop, or on a thread of the pool.
// Meanwhile nothing else uses the session. Loop's thread only.
class TlsHandshake {
 public:
  // Makes the session; runs where handshakes run.
  using MakeSession = std::function<Result<std::unique_ptr<TlsSession>>()>;
  class Owner {
   public:
    // A step that another thread performed has ended. Called by the loop.
    virtual void on_step() = 0;

   protected:
    ~Owner() = default;
  };

  // `first` has been received before the session was made.
  TlsHandshake(std::shared_ptr<TlsShared> shared, MakeSession make, bool server, Bytes first, Owner& owner);
  TlsHandshake(const TlsHandshake&) = delete;
  TlsHandshake& operator=(const TlsHandshake&) = delete;
  // A step of another thread is withdrawn, or goes on without effect.
  ~TlsHandshake();

  bool server() const noexcept { return server_; }
  // The next step needs no other thread.
  bool runs_here() const noexcept;
  void run_here() noexcept;
  // Lets another thread perform the next step. False: too many wait.
  bool submit(Loop& loop);

  // Null before it was made.
  TlsSession* session() const noexcept;
  // The queue of received bytes.
  ByteQueue& input() noexcept;
  TlsSession::Progress progress() const noexcept;
  // Why it failed.
  Error& error() noexcept;
  // From the peer's certificate or key; null: it has none.
  const std::shared_ptr<const Identity>& identity() const noexcept;

 private:
  struct Step;
  struct OffloadedStep;
  void on_step_done();

  const std::shared_ptr<TlsShared> shared_;
  const bool server_;
  Owner& owner_;
  const std::shared_ptr<Step> step_;
  exec::OffloadPool::Ticket ticket_ = 0;  // Not 0 while another thread performs a step.
};

}  // namespace hawser::security::tls
