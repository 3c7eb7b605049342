// hawser-microbench [--benchmark_...]                          runs the microbenchmarks
// hawser-microbench calls SIZE_BYTES IN_FLIGHT WARM_UP CALLS [tracer]
//   makes echo calls and prints the allocations of each side; "tracer": the server has a Tracer that samples none
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "bench/micro/counted_calls.h"
#include "process/program.h"

namespace {

int make_calls(char** arguments, bool tracer) {
  const auto number = [&](int index) { return std::strtoull(arguments[index], nullptr, 10); };
  try {
    const hawser::bench::CountedShape shape{
        .size_bytes = number(0), .in_flight = static_cast<unsigned>(number(1)), .calls = number(3), .tracer = tracer};
    const auto allocations = hawser::bench::make_counted_calls(shape, number(2));
    std::printf("{\"client\": %llu, \"server\": %llu}\n", static_cast<unsigned long long>(allocations.client),
                static_cast<unsigned long long>(allocations.server));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hawser-microbench: %s\n", error.what());
    return 1;
  }
}

int run_benchmarks(int argc, char** argv) {
  if (argc >= 6 && std::string_view(argv[1]) == "calls") {
    if (argc == 6) return make_calls(argv + 2, false);
    if (argc == 7 && std::string_view(argv[6]) == "tracer") return make_calls(argv + 2, true);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return hawser::process::run("hawser-microbench", [&] { return run_benchmarks(argc, argv); });
}
