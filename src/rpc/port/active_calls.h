#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "hawser/detail/reply_sink.h"
#include "wire/call_id.h"

namespace hawser::rpc {

// The calls of one connection of a server that are not answered in place. A call is found by its id until it has been
// answered, and it is active until its coroutine has ended. Loop's thread only.
class ActiveCalls {
 public:
  // `in_flight` counts the calls of the whole server.
  explicit ActiveCalls(std::atomic<std::size_t>& in_flight) noexcept : in_flight_(in_flight) {}
  ActiveCalls(const ActiveCalls&) = delete;
  ActiveCalls& operator=(const ActiveCalls&) = delete;

  // Returns the call of that id, or null if it has been answered.
  detail::ActiveCall* find(wire::CallId call) const noexcept {
    detail::ActiveCall* const found = in_slot(call.slot());
    return found != nullptr && found->id() == call.number() ? found : nullptr;
  }
  // Returns the call that is not answered yet and whose id has that slot, or null.
  detail::ActiveCall* in_slot(std::size_t slot) const noexcept {
    return slot < by_slot_.size() ? by_slot_[slot] : nullptr;
  }
  std::size_t unanswered() const noexcept { return unanswered_; }
  std::size_t active() const noexcept { return active_; }

  void enter(detail::ActiveCall& call) {
    const std::size_t slot = wire::CallId::from_number(call.id()).slot();
    if (slot >= by_slot_.size()) by_slot_.resize(slot + 1);
    by_slot_[slot] = &call;
    ++unanswered_;
    call.next = first_;
    call.previous = &first_;
    if (first_ != nullptr) first_->previous = &call.next;
    first_ = &call;
    ++active_;
    in_flight_.fetch_add(1, std::memory_order_relaxed);
  }
  void leave(detail::ActiveCall& call) noexcept {
    const wire::CallId id = wire::CallId::from_number(call.id());
    if (find(id) == &call) answered(id);
    *call.previous = call.next;
    if (call.next != nullptr) call.next->previous = call.previous;
    --active_;
    in_flight_.fetch_sub(1, std::memory_order_relaxed);
  }
  // From now on the client may reuse the call's slot, although the call itself may have to wait until its reply is
  // sent.
  void answered(wire::CallId call) noexcept {
    detail::ActiveCall* const found = find(call);
    if (found == nullptr) return;
    if (!found->outcome) found->outcome = ErrorCode::ok;
    by_slot_[call.slot()] = nullptr;
    --unanswered_;
  }

  // Calls `visit` for each active call, the newest first, until it returns false.
  template <class Visit>
  void each(Visit visit) const {
    for (const detail::ActiveCall* call = first_; call != nullptr && visit(*call); call = call->next) {
    }
  }

  // The ids of the calls that are not answered yet, the oldest first.
  std::vector<std::uint32_t> unanswered_ids() const;
  // As PortSession::destroy_calls().
  std::size_t destroy(std::size_t calls_max);
  // Returns true if that coroutine is the handler of an active call.
  bool handles(const void* frame) const noexcept;

 private:
  std::atomic<std::size_t>& in_flight_;
  std::vector<detail::ActiveCall*> by_slot_;  // Calls that are not answered yet, by the slot of the call id.
  std::size_t unanswered_ = 0;
  detail::ActiveCall* first_ = nullptr;
  std::size_t active_ = 0;
};

}  // namespace hawser::rpc
