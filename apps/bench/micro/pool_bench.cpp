// Acquiring and releasing memory as calls do.
#include <benchmark/benchmark.h>

#include <vector>

#include "hawser/bytes.h"
#include "hawser/task.h"
#include "heap/block_pool.h"

namespace hawser::bench {
namespace {

void block(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    BlockPool* pool = BlockPool::local();
    Block* taken = pool->acquire(bytes);
    benchmark::DoNotOptimize(taken);
    pool->release(taken);
  }
}
BENCHMARK(block)->Name("block_pool/take_give")->Arg(256)->Arg(256 << 10)->Arg(8 << 20);

void frame(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* taken = detail::allocate_frame(bytes);
    benchmark::DoNotOptimize(taken);
    detail::free_frame(taken, bytes);
  }
}
BENCHMARK(frame)->Name("frame_pool/take_give")->Arg(512);

}  // namespace
}  // namespace hawser::bench
