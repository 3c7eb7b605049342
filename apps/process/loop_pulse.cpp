#include "process/loop_pulse.h"

#include <algorithm>
#include <utility>

#include "hawser/loop.h"

namespace hawser::process {
namespace {

Task<void> beat_until_stop(std::atomic<bool>& beat, Duration interval, Background background) {
  for (;;) {
    beat.store(true, std::memory_order_relaxed);
    const Result<void> slept = co_await Loop::current()->sleep(interval, background.stopping);
    if (!slept) co_return;
  }
}

}  // namespace

LoopPulse::LoopPulse(Server& server, Duration interval) : beats_(server.loops().size()) {
  // The server distributes background work over its loops in turn. After a stop it takes none, and none is needed.
  for (std::atomic<bool>& beat : beats_) {
    static_cast<void>(server.spawn(
        [&beat, interval](Background background) { return beat_until_stop(beat, interval, std::move(background)); }));
  }
}

bool LoopPulse::all_beat() noexcept {
  const auto seen = [](const std::atomic<bool>& beat) { return beat.load(std::memory_order_relaxed); };
  if (!std::ranges::all_of(beats_, seen)) return false;
  for (std::atomic<bool>& beat : beats_) beat.store(false, std::memory_order_relaxed);
  return true;
}

}  // namespace hawser::process
