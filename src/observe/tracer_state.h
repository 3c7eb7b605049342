#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "hawser/tracing.h"
#include "observe/span_ring.h"

namespace hawser {

// The spans and counters that the copies of a Tracer share. Any thread.
struct Tracer::State {
  explicit State(const TracerOptions& given);
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // True for a call that is to be recorded from its beginning: its caller records its trace, or there is none yet and
  // the draw chooses it.
  bool samples(const std::optional<TraceContext>& parent, detail::CallDraw& draw) const noexcept;
  void record(const Span& span) noexcept;
  // The ring of the calling thread. Null if there is none for it. Takes a lock in the first call of each thread.
  observe::SpanRing* ring() noexcept;
  std::vector<std::shared_ptr<observe::SpanRing>> rings() const;

  const TracerOptions options;  // As they were given.
  // The values in use. Any thread changes them; nothing else depends on the order of their changes.
  std::atomic<double> ratio;
  std::atomic<bool> failed_calls;
  std::atomic<Duration::rep> slow_calls;
  const std::uint64_t number;  // Identifies this object among all of the process.
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> exported{0};
  std::atomic<std::uint64_t> export_missed{0};
  std::atomic<std::uint64_t> export_failed{0};
  std::atomic<std::uint64_t> export_retries{0};

 private:
  mutable std::mutex lock_;
  std::map<std::thread::id, std::shared_ptr<observe::SpanRing>> rings_;
};

}  // namespace hawser
