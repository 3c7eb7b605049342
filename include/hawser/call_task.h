#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/task.h"

namespace hawser {

namespace detail {

// Returns what is awaited for an Outcome::type. The arguments, perhaps after CallOptions, are read in place.
template <class Outcome, auto F, class Via, class... Given>
auto call_by(Via& via, [[maybe_unused]] MutableBytes memory, Given&... given) {
  if constexpr (std::is_same_v<Outcome, ValueOutcome<F>>) {
    return via.template call<F>(given...);
  } else if constexpr (std::is_same_v<Outcome, EndedOutcome<F>>) {
    return via.template call<F>(given...).with_outcome();
  } else {
    return via.template call<F>(given...).into(memory);
  }
}

}  // namespace detail

// A call of a ClientPool, a ClusterClient or a Retrying: a Task of the result that Call has, or of another one.
template <auto F, class Kept>
class [[nodiscard("a call is made by awaiting it")]] CallTask : public Task<typename detail::ValueOutcome<F>::type> {
  using Base = Task<typename detail::ValueOutcome<F>::type>;

 public:
  explicit CallTask(std::unique_ptr<Kept> kept) : CallTask(*kept, kept) {}

  // As Call::reply().
  [[nodiscard]] auto reply() && { return std::move(*this).into({}); }
  // As Call::into(). If the call is made again, `memory` is used again.
  [[nodiscard]] auto into(MutableBytes memory) && { return again<detail::ReplyOutcome<F>>(memory); }
  // As Call::with_outcome(). If the call is made again, the outcome is that of the last attempt.
  [[nodiscard]] auto with_outcome() && { return again<detail::EndedOutcome<F>>({}); }

 private:
  CallTask(Kept& there, std::unique_ptr<Kept>& kept)
      : Base(Kept::template run<detail::ValueOutcome<F>>(std::move(kept), {})), kept_(&there) {}
  template <class Outcome>
  auto again(MutableBytes memory) {
    if (!this->valid() || this->awaited()) [[unlikely]]
      detail::awaited_again();
    const Base unused = std::move(*this);  // Its frame has the arguments.
    return Kept::template run<Outcome>(std::make_unique<Kept>(std::move(*kept_)), memory);
  }

  Kept* kept_;  // In the frame of the task.
};

}  // namespace hawser
