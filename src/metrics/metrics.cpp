#include "hawser/metrics.h"

#include <algorithm>
#include <new>

namespace hawser {

std::size_t detail::metric_shard() noexcept {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t shard = next.fetch_add(1, std::memory_order_relaxed) % metric_shards;
  return shard;
}

std::uint64_t Counter::value() const noexcept {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.value.load(std::memory_order_relaxed);
  return sum;
}

// ---- Histogram ----

void HistogramSnapshot::merge(const HistogramSnapshot& other) noexcept {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  count += other.count;
  sum += other.sum;
}

std::uint64_t HistogramSnapshot::quantile(double fraction) const noexcept {
  return count == 0 ? 0 : Buckets::middle_of(Buckets::bucket_of(counts, count, fraction));
}

Histogram::~Histogram() {
  for (std::atomic<Shard*>& shard : shards_) delete shard.load(std::memory_order_relaxed);
}

// Returns null if there is no memory for the thread's shard.
Histogram::Shard* Histogram::shard() noexcept {
  std::atomic<Shard*>& own = shards_[detail::metric_shard()];
  Shard* found = own.load(std::memory_order_acquire);
  if (found != nullptr) [[likely]]
    return found;
  Shard* const fresh = new (std::nothrow) Shard;
  if (fresh == nullptr) return nullptr;
  if (own.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return found;
}

void Histogram::record(std::uint64_t value) noexcept {
  Shard* const own = shard();
  if (own == nullptr) [[unlikely]] {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  own->counts[Buckets::index_of(value)].fetch_add(1, std::memory_order_relaxed);
  own->sum.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::record(Duration duration, std::string_view trace_id) {
  constexpr std::size_t trace_id_bytes_max = 64;
  record(duration);
  if (trace_id.empty() || trace_id.size() > trace_id_bytes_max) return;
  const std::unique_lock lock(exemplars_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // Another thread keeps its own example.
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  const std::uint64_t value = ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  // One example for each power of two: 43 at most.
  Exemplar& exemplar = exemplars_[static_cast<std::size_t>(std::bit_width(std::min(value, Buckets::value_end)))];
  exemplar.trace_id.assign(trace_id);
  exemplar.value = value;
  exemplar.at = std::chrono::system_clock::now();
}

HistogramSnapshot Histogram::snapshot() const noexcept {
  HistogramSnapshot result;
  for (const std::atomic<Shard*>& shard : shards_) {
    const Shard* const from = shard.load(std::memory_order_acquire);
    if (from == nullptr) continue;
    result.sum += from->sum.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < result.counts.size(); ++i) {
      result.counts[i] += from->counts[i].load(std::memory_order_relaxed);
    }
  }
  // The sum of the buckets, so that count and buckets agree while other threads record.
  for (const std::uint64_t count : result.counts) result.count += count;
  return result;
}

}  // namespace hawser
