#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kv/lane.h"
#include "pipe/held_charge.h"

namespace hawser::kv {

// The commands of one connection that travel to other shards, or wait for that, by shard. Loop's thread only.
class ForwardedCommands {
 public:
  // Bytes of arguments from which on the connection takes no further request.
  static constexpr std::size_t bytes_max = std::size_t{4} << 20;

  // `account`: of the connection, which it outlives.
  explicit ForwardedCommands(hawser::detail::ReceiveAccount& account) noexcept : charge_(account) {}

  // The shards of the store, if it has several.
  void set_shards(unsigned shards) { lanes_.resize(shards); }
  bool full() const noexcept { return bytes_ >= bytes_max; }
  std::size_t charged_bytes() const noexcept { return charge_.bytes(); }

  // The lane to a shard. `make` returns the lane that is missing.
  template <class Make>
  Lane& lane(unsigned shard, Make make) {
    std::shared_ptr<Lane>& lane = lanes_[shard];
    if (lane == nullptr) lane = make();
    return *lane;
  }
  // Calls `visit(lane, batch)` for each lane with a batch that waits.
  template <class Visit>
  void each_waiting(Visit visit) {
    for (const std::shared_ptr<Lane>& lane : lanes_) {
      if (lane == nullptr || lane->moving()) continue;
      if (ForwardedBatch* const batch = lane->waiting()) visit(*lane, *batch);
    }
  }
  // A command behind those of its batch.
  void add(ForwardedBatch& batch, const ForwardedBatch::Item& item, Arguments arguments);
  // A batch with all its replies has returned.
  void remove(const ForwardedBatch& batch) noexcept { bytes_ -= std::min(bytes_, batch.held_bytes()); }
  // Charges them, if they are many.
  void charge() noexcept {
    constexpr std::size_t free_bytes = 64 * 1024;
    charge_.set_always(bytes_ > free_bytes ? bytes_ : 0);
  }
  // The connection has ended.
  void end() {
    charge_.set_always(0);
    for (std::shared_ptr<Lane>& lane : lanes_) {
      if (lane != nullptr) std::exchange(lane, nullptr)->end();
    }
  }

 private:
  std::vector<std::shared_ptr<Lane>> lanes_;  // By shard; null: not used yet.
  std::size_t bytes_ = 0;
  pipe::HeldCharge charge_;
};

}  // namespace hawser::kv
