#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/alive.h"
#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/transport.h"
#include "hawser/transports.h"
#include "transport/network.h"
#include "transport/path_proof.h"
#include "wire/hello.h"

namespace hawser::rpc {

using TransportList = std::vector<std::shared_ptr<transport::Transport>>;

// Returns the transports of `network` that the options enable and choose, in the order in which they are tried. The
// error names the wrong option: an unknown name, two transports of one name, or more transports than a HELLO can offer.
Result<TransportList> choose_transports(const TransportOptions& options, transport::Network& network);

// The transports beside the stream that one side uses on one loop, in its order. All functions but the constructor run
// on the loop's thread.
class AttachedTransports {
 public:
  AttachedTransports(Loop& loop, TransportList transports, Duration retry_min)
      : loop_(loop), retry_min_(retry_min), transports_(std::move(transports)) {}

  bool empty() const noexcept { return transports_.empty(); }
  // Creates a worker for each transport that has no usable one. A failure is logged the first time; a call at least
  // retry_min later tries again.
  void attach();

  struct Entry {
    std::string_view name;
    std::shared_ptr<transport::TransportWorker> worker;  // Null if it could not be created.
    std::string reason;                                  // Why it could not be created.
  };
  // Valid after attach().
  const std::vector<Entry>& all() const noexcept { return attached_; }
  const Entry* find(std::string_view name) const noexcept;

 private:
  Result<std::shared_ptr<transport::TransportWorker>> attach_one(transport::Transport& transport);

  Loop& loop_;
  const Duration retry_min_;
  Time tried_{};
  const TransportList transports_;
  std::vector<Entry> attached_;
};

// A server's selection of a transport for one connection. It tries each of its transports at most once, in its order.
class TransportSelector {
 public:
  // Limit of the time in which a transport must make a pending connection, and again to connect it, before the next
  // transport is selected.
  static constexpr Duration step_max = std::chrono::milliseconds(1500);

  // `local` is the stream's local address.
  TransportSelector(Loop& loop, const AttachedTransports& transports, std::vector<wire::NamedBytes> offers,
                    std::string local, transport::MessageLimits limits)
      : loop_(loop), transports_(transports), offers_(std::move(offers)), local_(std::move(local)), limits_(limits) {}

  // Adds the next possible selection to `hello`, with the reasons against the transports that are not possible; then
  // calls `done`, possibly from within this call. Destroying this object prevents the call. `selected` is false if the
  // stream carries the messages. `hello` must live until the call.
  using Done = std::function<void(bool selected)>;
  void select(wire::Hello& hello, Done done);
  // Records that the present selection failed.
  void failed(std::string reason);
  // Connects with the parameters of the client's pending connection. Calls `ready`, possibly from within this call.
  // Destroying this object prevents the call.
  void connect(Bytes answer, transport::PendingConnection::Ready ready);

  transport::PendingConnection* pending() noexcept { return pending_.get(); }
  // The client's offer of the selected transport.
  Bytes offer() const noexcept;
  std::string_view transport() const noexcept { return transport_; }
  std::size_t failures() const noexcept { return failures_; }
  // "name: reason" of each transport that was not used, also of those that the client did not offer. At most
  // reasons_max, each of at most reason_bytes_max.
  static constexpr std::size_t reasons_max = 6;
  static constexpr std::size_t reason_bytes_max = 160;
  std::vector<std::string>& reasons() noexcept { return reasons_; }

 private:
  void next();
  void selected();
  void connected(const Result<void>& outcome);
  void give_up();
  void note(std::string_view reason);
  void on_timer() noexcept;

  Loop& loop_;
  const AttachedTransports& transports_;
  const std::vector<wire::NamedBytes> offers_;
  const std::string local_;
  const transport::MessageLimits limits_;
  std::size_t next_ = 0;
  std::string_view transport_;
  std::unique_ptr<transport::PendingConnection> pending_;
  std::vector<wire::NamedBytes> declined_;  // Declined transports that no hello has reported yet.
  std::size_t failures_ = 0;
  std::vector<std::string> reasons_;
  wire::Hello* hello_ = nullptr;               // Non-null while a transport is being selected.
  Done done_;                                  // Set while the pending connection is made.
  transport::PendingConnection::Ready ready_;  // Set while the pending connection is connected.
  MemberTimer<&TransportSelector::on_timer> timer_{*this};
  const Alive<TransportSelector> alive_{*this};
};

// Computes the limits from both sides' message_bytes_max, which count the prefix that a message has on a stream.
// `protection` is as in HELLO.
transport::MessageLimits message_limits(std::size_t theirs, std::size_t ours, std::uint8_t protection) noexcept;
// The bytes of a message beside the stream that its protection takes (transport::PathProtection, as in HELLO).
std::size_t path_overhead(std::uint8_t protection) noexcept;
// The higher level of what a server and a client demand, as its HELLO answers it.
std::uint8_t higher_protection(transport::PathProtection server, std::uint8_t client) noexcept;
// Empty if a path may be used with what the client demands and with messages of `message_bytes_max`; otherwise the
// reason. A literal.
std::string_view refusal_of_path(std::uint8_t client, std::size_t message_bytes_max) noexcept;

}  // namespace hawser::rpc
