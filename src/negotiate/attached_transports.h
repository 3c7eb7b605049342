#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "hawser/transport/transport.h"
#include "hawser/transports.h"
#include "negotiate/settle.h"
#include "transport/network.h"

namespace hawser::negotiate {

using TransportList = std::vector<std::shared_ptr<transport::Transport>>;

// Returns the transports of `network` that the options enable and choose, in the order in which they are tried. The
// error names the wrong option: an unknown name, two transports of one name, or more transports than a HELLO can offer.
Result<TransportList> choose_transports(const TransportOptions& options, transport::Network& network);

// The transports beside the stream that one side uses on one loop, in its order. All functions but the constructor run
// on the loop's thread.
class AttachedTransports {
 public:
  // Limit of the time in which a transport must make a pending connection, and again to connect it, before the server
  // tries the next transport.
  static constexpr Duration step_max = std::chrono::milliseconds(1500);

  AttachedTransports(Loop& loop, TransportList transports, Duration retry_min)
      : loop_(loop), retry_min_(retry_min), transports_(std::move(transports)) {}

  bool empty() const noexcept { return transports_.empty(); }
  // Creates a worker for each transport that has no usable one. A failure is logged the first time; a call at least
  // retry_min later tries again. If memory ran out, the next call does.
  void attach();

  struct Entry {
    std::string_view name;
    std::shared_ptr<transport::TransportWorker> worker;  // Null if it could not be created.
    std::string reason;                                  // Why it could not be created.
    bool untried = true;                                 // It was not tried yet, or memory ran out.
  };
  // Valid after attach().
  const std::vector<Entry>& all() const noexcept { return attached_; }
  const Entry* find(std::string_view name) const noexcept;
  // The names of all transports, in their order. Literals. Also valid before attach().
  std::vector<std::string_view> names() const;

 private:
  Result<std::shared_ptr<transport::TransportWorker>> attach_one(transport::Transport& transport, Entry& entry);

  Loop& loop_;
  const Duration retry_min_;
  Time tried_{};
  const TransportList transports_;
  std::vector<Entry> attached_;
};

// The limits of the messages on a path.
transport::MessageLimits message_limits(const Agreement& agreed) noexcept;

}  // namespace hawser::negotiate
