#include "bench/load/handlers.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "bench/run/cell.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::bench {
namespace {

std::int64_t nanoseconds(const timeval& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_usec} * 1000;
}

}  // namespace

Ack ack_of(std::string_view payload) noexcept {
  Ack ack{.bytes = payload.size()};
  std::memcpy(&ack.head, payload.data(), std::min(payload.size(), sizeof(ack.head)));
  return ack;
}

std::string_view echo(std::string_view payload) { return payload; }
Task<std::string_view> echo_task(std::string_view payload) { co_return payload; }
Ack ack(std::string_view payload) { return ack_of(payload); }
Task<Ack> ack_task(std::string_view payload) { co_return ack_of(payload); }

Usage usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto clock = std::chrono::steady_clock::now().time_since_epoch();
  return {.cpu_ns = nanoseconds(used.ru_utime) + nanoseconds(used.ru_stime),
          .clock_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(clock).count()};
}

ServerFacts describe(Context& context) {
  Loop& loop = context.loop();
  return {.poller = std::string(loop.poller().name()),
          .wait = std::string(to_string(loop.options().wait)),
          .version = HAWSER_VERSION};
}

}  // namespace hawser::bench
