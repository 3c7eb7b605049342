#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"
#include "exec/condition.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {

// Runs one step of a pending connection and waits until it has ended, and no longer than `deadline`. Nothing: it has
// not ended. `begin` gets a PendingConnection::Ready and passes it to when_ready() or connect(). It is called once, and
// what it refers to must last until then.
template <class Begin>
Task<std::optional<Result<void>>> run_step(Loop& loop, Time deadline, Begin begin) {
  struct State {
    explicit State(Loop& on) : changed(on) {}
    std::optional<Result<void>> outcome;
    exec::Condition changed;
    MemberTimer<&exec::Condition::notify_all> timer{changed};
  };
  const auto state = std::make_shared<State>(loop);
  begin([weak = std::weak_ptr(state)](const Result<void>& outcome) {
    const auto there = weak.lock();
    if (there == nullptr) return;
    there->outcome.emplace(outcome);
    there->changed.notify_all();
  });
  if (!state->outcome) state->timer.start(loop, deadline);
  while (!state->outcome && loop.now() < deadline) {
    co_await state->changed.wait();
  }
  co_return std::move(state->outcome);
}

// ---- For a loop that does not run otherwise, as in tests and models: each runs it until the step has ended.

// The error `internal` means a hang.
inline constexpr Duration step_hangs_after = std::chrono::seconds(60);
template <class Begin>
Result<void> finish_step(Loop& loop, Begin begin) {
  std::optional<Result<void>> outcome =
      loop.run(run_step(loop, loop.poller().now() + step_hangs_after, std::move(begin)));
  if (!outcome) return fail(ErrorCode::internal, "a step of the handshake has not ended within 60 s");
  return std::move(*outcome);
}

// `begun` is the result of TransportWorker::select() or accept(). Returns the pending connection when it is ready.
inline Result<std::unique_ptr<PendingConnection>> finish_half(Loop& loop,
                                                              Result<std::unique_ptr<PendingConnection>> begun) {
  if (!begun) return begun;
  PendingConnection& pending = **begun;
  TRY(finish_step(loop, [&](PendingConnection::Ready ready) { pending.when_ready(std::move(ready)); }));
  return begun;
}

inline Result<void> finish_connect(Loop& loop, PendingConnection& pending, Bytes client) {
  return finish_step(loop, [&](PendingConnection::Ready ready) { pending.connect(client, std::move(ready)); });
}

}  // namespace hawser::transport
