#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser::transport::rdma {

// Handshakes on one loop whose clients hold a queue pair and its memory. They have a bound of their own, because
// handshakes of streams cost much less.
class HalfOpen : public std::enable_shared_from_this<HalfOpen> {
 public:
  // A handshake that is younger than this is not ended in favour of a newer one.
  static constexpr Duration patience = std::chrono::seconds(1);

  // One handshake. It leaves when it is destroyed.
  class Place {
   public:
    Place() noexcept = default;
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    void leave() noexcept {
      if (const std::shared_ptr<HalfOpen> all = std::exchange(all_, nullptr)) all->entries_.erase(at_);
    }

   protected:
    ~Place() { leave(); }
    // The handshake must end because another one got its place. It has left already.
    virtual void give_way() noexcept = 0;

   private:
    friend class HalfOpen;
    std::shared_ptr<HalfOpen> all_;
    std::list<Place*>::iterator at_;
    Time since_{};
  };

  explicit HalfOpen(std::size_t most) noexcept : most_(most) {}

  // The error names the bound.
  Result<void> enter(Place& place, Time now) {
    if (entries_.size() >= most_) {
      Place& oldest = *entries_.front();
      if (now - oldest.since_ < patience) {
        return fail(Error::of_transport(
            ErrorCode::overloaded,
            std::to_string(entries_.size()) +
                " RDMA handshakes (RdmaOptions::half_open_max, at most a quarter of memory_bytes_max) are "
                "going on: try again later"));
      }
      oldest.leave();
      oldest.give_way();
    }
    place.since_ = now;
    place.at_ = entries_.insert(entries_.end(), &place);
    place.all_ = shared_from_this();
    return {};
  }
  std::size_t size() const noexcept { return entries_.size(); }

 private:
  const std::size_t most_;
  std::list<Place*> entries_;  // The oldest is first.
};

}  // namespace hawser::transport::rdma
