#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "block/nbd/connection_place.h"
#include "block/nbd/exports.h"
#include "block/nbd/listening.h"
#include "block/nbd/session.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"
#include "hawser/time.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"

namespace hawser::block::nbd {

struct NbdLimits {
  // Further connections wait to be accepted. While one waits, place_to_free() says whose connection ends.
  std::size_t connections_max = 256;
  PlaceRules places = {};
  // Data of the reads and writes of all connections. Further requests wait.
  std::size_t memory_bytes_max = std::size_t{256} << 20;
  // When a request has waited for memory for so long, connections whose clients make memory wait are ended:
  // holders_to_end(). A client is silent if it has not moved holder_bytes_min within holder_silence_max.
  Duration memory_wait_max = std::chrono::seconds(5);
  Duration holder_silence_max = std::chrono::seconds(5);
  std::size_t holder_bytes_min = 256 * 1024;
  SessionLimits session = {};
};

// Accepts the connections of NBD clients, and serves them on its loop.
class Acceptor final : exec::Watcher {
 public:
  // Throws std::system_error if the system takes no more descriptors.
  // `security`: null without TLS.
  Acceptor(Loop& loop, NbdListening& listening, Exports& exports, const NbdLimits& limits,
           std::shared_ptr<transport::ServerSecurity> security);
  ~Acceptor();

  // Requests in progress end within `grace`, and so do the connections. Called once, before the destruction.
  Task<void> stop(Duration grace);

 private:
  static constexpr Duration accept_retry = std::chrono::milliseconds(100);
  static constexpr Duration check_max = std::chrono::seconds(1);

  void on_ready(exec::Readiness) override { accept_again(); }
  void accept();
  void accept_again() noexcept;
  Task<void> serve(SocketDescriptor socket);
  void check() noexcept;
  void check_memory();
  void free_place();
  void end_holders(std::size_t wanted);

  Loop& loop_;
  NbdListening& listening_;
  Exports& exports_;
  const NbdLimits limits_;
  const std::shared_ptr<transport::ServerSecurity> security_;
  const Duration check_interval_;
  Semaphore memory_;
  std::list<NbdSession*> sessions_;
  bool full_logged_ = false;  // Since a place was free.
  bool stopping_ = false;
  MemberTimer<&Acceptor::accept_again> retry_{*this};
  MemberTimer<&Acceptor::check> check_timer_{*this};
  Scope connections_;
};

}  // namespace hawser::block::nbd
