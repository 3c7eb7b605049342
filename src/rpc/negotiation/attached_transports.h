#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/transport.h"
#include "hawser/transports.h"
#include "transport/network.h"
#include "wire/hello.h"

namespace hawser::rpc {

using TransportList = std::vector<std::shared_ptr<transport::Transport>>;

// The transports of `network` that the options enable and choose, in the order in which they are tried. The error names
// the option that is wrong: a name that no transport has, two transports of one name, or more than a HELLO can offer.
Result<TransportList> choose_transports(const TransportOptions& options, transport::Network& network);

// The transports beside the stream that one side has on one loop, in its order. Loop's thread only, but for the
// constructor.
class AttachedTransports {
 public:
  AttachedTransports(Loop& loop, TransportList transports, Duration retry_min)
      : loop_(loop), retry_min_(retry_min), transports_(std::move(transports)) {}

  bool empty() const noexcept { return transports_.empty(); }
  // Gets an end of each transport that has none that is usable; what can't be had is logged the first time, and tried
  // again, when this is called, retry_min later at the earliest.
  void attach();

  struct Entry {
    std::string_view name;
    std::shared_ptr<transport::TransportWorker> worker;  // Null if it can't be had.
    std::string reason;                                  // Why not.
  };
  // After attach().
  const std::vector<Entry>& all() const noexcept { return attached_; }
  const Entry* find(std::string_view name) const noexcept;

 private:
  Loop& loop_;
  const Duration retry_min_;
  Time tried_{};
  const TransportList transports_;
  std::vector<Entry> attached_;
};

// A server's choice for one connection: its transports in its order, each tried at most once.
class TransportSelector : Timer {
 public:
  // How long a transport may take to make a pending connection, and to connect it, before the next one is selected.
  static constexpr Duration step_max = std::chrono::milliseconds(1500);

  // `local` is the stream's address here.
  TransportSelector(Loop& loop, const AttachedTransports& transports, std::vector<wire::NamedBytes> offers,
                    std::string local, transport::MessageLimits limits)
      : Timer(&TransportSelector::on_timer),
        loop_(loop),
        transports_(transports),
        offers_(std::move(offers)),
        local_(std::move(local)),
        limits_(limits) {}

  // Adds the next selection that can be made to `hello`, and the reasons against those that can't; then calls `done`,
  // perhaps from within, unless this was destroyed before. False: the stream it is. `hello` stays until then.
  using Done = std::function<void(bool selected)>;
  void select(wire::Hello& hello, Done done);
  // The selection at hand came to nothing.
  void failed(std::string reason);
  // The client's pending connection answers the selection at hand. Calls `ready`, perhaps from within, unless this was
  // destroyed before.
  void connect(Bytes answer, transport::PendingConnection::Ready ready);

  transport::PendingConnection* pending() noexcept { return pending_.get(); }
  std::string_view transport() const noexcept { return transport_; }
  std::size_t failures() const noexcept { return failures_; }

 private:
  Loop& loop_;
  const AttachedTransports& transports_;
  const std::vector<wire::NamedBytes> offers_;
  const std::string local_;
  const transport::MessageLimits limits_;
  std::size_t next_ = 0;
  std::string_view transport_;
  std::unique_ptr<transport::PendingConnection> pending_;
  std::vector<wire::NamedBytes> declined_;  // Not told yet.
  std::size_t failures_ = 0;
  wire::Hello* hello_ = nullptr;               // While one is selected.
  Done done_;                                  // While the pending connection is made.
  transport::PendingConnection::Ready ready_;  // While it is connected.
  const std::shared_ptr<char> alive_ = std::make_shared<char>();

  void next();
  void selected();
  void connected(const Result<void>& outcome);
  void give_up();
  static void on_timer(Timer& timer) noexcept;
};

// From both sides' message_bytes_max, which count the prefix that a message has on a stream.
transport::MessageLimits message_limits(std::size_t theirs, std::size_t ours) noexcept;

}  // namespace hawser::rpc
