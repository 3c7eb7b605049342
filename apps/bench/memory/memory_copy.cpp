#include "bench/memory/memory_copy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/load/processors.h"

namespace hawser::bench {

CopyMeasured measure_copies(const RunOptions& options, std::size_t bytes) {
  using SteadyClock = std::chrono::steady_clock;
  constexpr std::size_t in_flight_max = 4;
  const std::size_t block = options.memory_block;
  // A place is written again after 2 MiB of others: before that, the owner's processor has its lines in its own cache,
  // and the copies are several times as slow.
  const std::size_t places = std::max(in_flight_max, (std::size_t{2} << 20) / block);
  std::vector<std::byte> shared(places * block);
  std::vector<std::byte> source(bytes);
  std::vector<std::byte> region(bytes);
  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<bool> stop{false};
  std::thread owner([&] {
    if (options.server_cpu && *options.server_cpu >= 0) static_cast<void>(pin_to(*options.server_cpu));
    std::size_t at = 0;
    for (std::uint64_t count = 0; !stop.load(std::memory_order_relaxed);) {
      if (written.load(std::memory_order_acquire) == count) continue;
      std::memcpy(region.data() + at, shared.data() + count % places * block, block);
      at = at + 2 * block <= bytes ? at + block : 0;
      taken.store(++count, std::memory_order_release);
    }
  });
  if (options.client_cpu && *options.client_cpu >= 0) static_cast<void>(pin_to(*options.client_cpu));
  CopyMeasured measured;
  const auto start = SteadyClock::now();
  auto begin = start;
  std::uint64_t first = 0;
  std::size_t at = 0;
  bool counting = false;
  for (std::uint64_t count = 0;;) {
    if (count - taken.load(std::memory_order_acquire) < in_flight_max) {
      std::memcpy(shared.data() + count % places * block, source.data() + at, block);
      at = at + 2 * block <= bytes ? at + block : 0;
      written.store(++count, std::memory_order_release);
    }
    const double passed = std::chrono::duration<double>(SteadyClock::now() - begin).count();
    if (!counting && passed > options.seconds / 4) {
      counting = true;
      begin = SteadyClock::now();
      first = taken.load();
    } else if (counting && passed > options.seconds) {
      measured = {passed, (taken.load() - first) * block};
      break;
    }
  }
  stop = true;
  owner.join();
  return measured;
}

}  // namespace hawser::bench
