#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/streaming_call.h"
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

template <class... Given>
inline constexpr bool options_first =
    std::is_same_v<std::remove_cvref_t<std::tuple_element_t<0, std::tuple<Given..., void>>>, CallOptions>;

// call() and open() of a caller whose calls are Tasks. CallOptions may precede the arguments. `By` has make_call() and
// make_open(), which have CallOptions in any case.
template <class By>
class TaskCaller {
 public:
  HAWSER_ERROR_IF_BEGIN
  template <auto F, class... Given>
    requires(!options_first<Given...>)
  auto call(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return call<F>(CallOptions(), std::forward<Given>(arguments)...);
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  auto call(Options&& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(!MethodFacts<F>::streams, "hawser: this handler has streams: use open<f>(...)");
    return by().template make_call<F, Given...>(std::forward<Options>(options), std::forward<Given>(arguments)...);
  }
  template <WrongFunction F, class... Given>
    requires(F.wrong)
  void call(Given&&...) = delete;
  template <auto F, class... Given>
    requires(!options_first<Given...>)
  Task<Result<StreamingCall<F>>> open(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return open<F>(CallOptions(), std::forward<Given>(arguments)...);
  }
  template <auto F, class Options = CallOptions, class... Given>
    requires std::is_same_v<std::remove_cvref_t<Options>, CallOptions>
  Task<Result<StreamingCall<F>>> open(Options&& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    static_assert(MethodFacts<F>::streams, "hawser: this handler has no streams: use call<f>(...)");
    return by().template make_open<F, Given...>(std::forward<Options>(options), std::forward<Given>(arguments)...);
  }
  template <WrongFunction F, class... Given>
    requires(F.wrong)
  void open(Given&&...) = delete;
  HAWSER_ERROR_IF_END

 protected:
  TaskCaller() = default;
  ~TaskCaller() = default;

 private:
  By& by() noexcept { return static_cast<By&>(*this); }
};

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
