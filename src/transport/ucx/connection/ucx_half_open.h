#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/time.h"

namespace hawser::transport {

// Clients on one loop that have been selected and from which no message has arrived over UCX yet. Their number is
// bounded. Further clients wait in the order of their arrival. Only the loop's thread may use it.
class UcxHalfOpen : public std::enable_shared_from_this<UcxHalfOpen> {
 public:
  // A client waits at most for this time.
  static constexpr Duration wait_max = std::chrono::seconds(1);

  // Counts one client until it is destroyed.
  class Place {
   public:
    explicit Place(std::shared_ptr<UcxHalfOpen> all) noexcept : all_(std::move(all)) { ++all_->places_; }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place() {
      --all_->places_;
      all_->stuck_ = false;
      all_->admit_soon();
    }

   private:
    const std::shared_ptr<UcxHalfOpen> all_;
  };

  // A client that waits for a place. It leaves when it is destroyed.
  class Waiter {
   public:
    Waiter() noexcept = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    void leave() noexcept {
      if (const std::shared_ptr<UcxHalfOpen> all = std::exchange(all_, nullptr)) all->waiters_.erase(at_);
    }

   protected:
    ~Waiter() { leave(); }
    // The loop calls it, when the waiter has left. It may destroy the waiter.
    virtual void on_place(std::unique_ptr<Place> place) = 0;

   private:
    friend class UcxHalfOpen;
    std::shared_ptr<UcxHalfOpen> all_;
    std::list<Waiter*>::iterator at_;
  };

  // `waiters_max` limits the clients that wait.
  UcxHalfOpen(Loop& loop, std::size_t most, std::size_t waiters_max) noexcept
      : loop_(loop), most_(most), waiters_max_(waiters_max) {}

  // Returns null if all places are taken.
  std::unique_ptr<Place> enter() { return has_room() ? std::make_unique<Place>(shared_from_this()) : nullptr; }
  bool has_room() const noexcept { return places_ < most_ && waiters_.empty(); }
  // Returns false if too many wait, or if a client has waited for `wait_max` and no place has become free since then.
  bool wait(Waiter& waiter) {
    if (stuck_ || waiters_.size() >= waiters_max_) return false;
    waiter.at_ = waiters_.insert(waiters_.end(), &waiter);
    waiter.all_ = shared_from_this();
    return true;
  }
  // A client has waited for `wait_max` and leaves.
  void gave_up() noexcept { stuck_ = true; }
  std::unexpected<Error> refusal() const {
    return fail(Error::of_transport(
        ErrorCode::overloaded, std::to_string(places_) + " clients of this loop (limit UcxOptions::half_open_max, " +
                                   std::to_string(most_) +
                                   ") have not sent their first message over UCX: try again later"));
  }
  std::size_t size() const noexcept { return places_; }
  std::size_t waiting() const noexcept { return waiters_.size(); }

 private:
  void admit_soon() {
    if (waiters_.empty() || std::exchange(admitting_, true)) return;
    loop_.post([all = weak_from_this()] {
      if (const std::shared_ptr<UcxHalfOpen> self = all.lock()) self->admit();
    });
  }
  void admit() {
    admitting_ = false;
    while (!waiters_.empty() && places_ < most_) {
      Waiter& first = *waiters_.front();
      first.leave();
      first.on_place(std::make_unique<Place>(shared_from_this()));
    }
  }

  Loop& loop_;
  const std::size_t most_;
  const std::size_t waiters_max_;
  std::size_t places_ = 0;
  std::list<Waiter*> waiters_;  // The oldest is first.
  bool admitting_ = false;
  bool stuck_ = false;
};

}  // namespace hawser::transport
