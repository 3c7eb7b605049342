#pragma once

#include <hawser/background_loops.h>
#include <hawser/client.h>
#include <hawser/error.h>
#include <hawser/memory.h>
#include <hawser/scope.h>
#include <hawser/sync.h>
#include <hawser/task.h>
#include <hawser/time.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "information.h"
#include "transfer.h"

namespace hawser::nixl {

struct PeerOptions {
  std::string own_name;
  Duration timeout = std::chrono::seconds(300);  // Each transfer and each notification has it.
  ClientOptions client = {};
};

// The connection to another agent, or to the own one for local transfers. It is opened when it is first needed, and
// again when it was lost. Any thread, except for the threads of the background loops.
class Peer : public std::enable_shared_from_this<Peer> {
 public:
  // Bytes of notifications that have not been sent yet. More are refused.
  static constexpr std::size_t pending_bytes_max = std::size_t{64} << 20;

  Peer(std::shared_ptr<BackgroundLoops> loops, std::size_t loop, AgentInformation information, PeerOptions options);
  ~Peer() { close(); }

  const AgentInformation& information() const noexcept { return information_; }

  // Waits until the connection is open. Error: that of the last address.
  Result<void> connect();
  // Begins a transfer that is not active. The notification follows the data.
  void post(const std::shared_ptr<Transfer>& transfer, std::optional<std::string> notification);
  // Ends an active transfer with `cancelled`. When it returns, no frame writes local memory any more.
  void cancel(const std::shared_ptr<Transfer>& transfer);
  // Sends a notification that belongs to no transfer. They arrive in the order of the calls. One that cannot be
  // delivered is logged. Errors: `overloaded` above pending_bytes_max, and `unavailable` after close().
  Result<void> notify(std::string message);
  // Ends the connection, and its transfers with `unavailable`. Later transfers end at once.
  void close();

 private:
  // Runs `work` on the loop's thread and waits for its end.
  void run_on_loop(const std::function<void()>& work);
  Task<Result<std::shared_ptr<Client>>> open();
  Task<Result<std::shared_ptr<Client>>> dial(std::string address);
  Task<Result<void>> execute(const Transfer& transfer);
  Task<void> run(Transfer& transfer);
  Task<void> send_pending();

  const std::shared_ptr<BackgroundLoops> loops_;
  Loop& loop_;
  const AgentInformation information_;
  const PeerOptions options_;

  std::mutex mutex_;  // Protects these.
  std::deque<std::string> pending_;
  std::size_t pending_bytes_ = 0;
  bool sending_ = false;
  bool closed_ = false;

  // Loop's thread. `tasks` is destroyed before what its tasks use.
  struct OnLoop {
    Mutex opening;
    std::shared_ptr<Client> client;
    std::unordered_map<Transfer*, std::shared_ptr<Transfer>> active;
    Scope tasks;
  };
  std::unique_ptr<OnLoop> on_loop_ = std::make_unique<OnLoop>();
};

}  // namespace hawser::nixl
