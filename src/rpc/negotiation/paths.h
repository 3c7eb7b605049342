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
#include "hawser/transports.h"
#include "transport/data_path.h"
#include "transport/network.h"
#include "wire/hello.h"

namespace hawser::rpc {

using TransportList = std::vector<std::shared_ptr<transport::DataPath>>;

// The transports of `network` that the options enable and choose, in the order in which they are tried. The error names the
// option that is wrong: a name that no transport has, two transports of one name, or more than a HELLO can offer.
Result<TransportList> choose_transports(const TransportOptions& options, transport::Network& network);

// The paths beside the stream that one side has on one loop, in its order. Loop's thread only, but for the constructor.
class Paths {
 public:
  Paths(Loop& loop, TransportList paths, Duration retry_min)
      : loop_(loop), retry_min_(retry_min), paths_(std::move(paths)) {}

  bool empty() const noexcept { return paths_.empty(); }
  // Gets an end of each path that has none that is usable; what can't be had is logged the first time, and tried again, when this is
  // called, retry_min later at the earliest.
  void attach();

  struct Path {
    std::string_view name;
    std::shared_ptr<transport::PathEnd> end;  // Null if it can't be had.
    std::string reason;                       // Why not.
  };
  // After attach().
  const std::vector<Path>& all() const noexcept { return attached_; }
  const Path* find(std::string_view name) const noexcept;

 private:
  Loop& loop_;
  const Duration retry_min_;
  Time tried_{};
  const TransportList paths_;
  std::vector<Path> attached_;
};

// A server's choice for one connection: its paths in its order, each tried at most once.
class Proposals : Timer {
 public:
  // How long a path may take to make a half, and to connect it, before the next one is proposed.
  static constexpr Duration step_max = std::chrono::milliseconds(1500);

  // `local` is the stream's address here.
  Proposals(Loop& loop, const Paths& paths, std::vector<wire::NamedBytes> offers, std::string local,
            transport::PathLimits limits)
      : Timer(&Proposals::on_timer),
        loop_(loop),
        paths_(paths),
        offers_(std::move(offers)),
        local_(std::move(local)),
        limits_(limits) {}

  // Adds the next proposal that can be made to `hello`, and the reasons against those that can't; then calls `done`, perhaps from
  // within, unless this was destroyed before. False: the stream it is. `hello` stays until then.
  using Done = std::function<void(bool proposed)>;
  void propose(wire::Hello& hello, Done done);
  // The proposal at hand came to nothing.
  void failed(std::string reason);
  // The client's half answers the proposal at hand. Calls `ready`, perhaps from within, unless this was destroyed before.
  void connect(Bytes answer, transport::PathHalf::Ready ready);

  transport::PathHalf* half() noexcept { return half_.get(); }
  std::string_view path() const noexcept { return path_; }
  std::size_t failures() const noexcept { return failures_; }

 private:
  Loop& loop_;
  const Paths& paths_;
  const std::vector<wire::NamedBytes> offers_;
  const std::string local_;
  const transport::PathLimits limits_;
  std::size_t next_ = 0;
  std::string_view path_;
  std::unique_ptr<transport::PathHalf> half_;
  std::vector<wire::NamedBytes> declined_;  // Not told yet.
  std::size_t failures_ = 0;
  wire::Hello* hello_ = nullptr;      // While one is proposed.
  Done done_;                         // While the half is made.
  transport::PathHalf::Ready ready_;  // While it is connected.
  const std::shared_ptr<char> alive_ = std::make_shared<char>();

  void next();
  void proposed();
  void connected(const Result<void>& outcome);
  void give_up();
  static void on_timer(Timer& timer) noexcept;
};

// From both sides' message_bytes_max, which count the prefix that a message has on a stream.
transport::PathLimits path_limits(std::size_t theirs, std::size_t ours) noexcept;

}  // namespace hawser::rpc
