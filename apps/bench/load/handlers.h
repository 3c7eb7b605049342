#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hawser/context.h"
#include "hawser/task.h"

// Handlers of the benchmark's server.
namespace hawser::bench {

// An acknowledgement of 16 bytes, which shows that the payload has arrived.
struct Ack {
  std::uint64_t bytes = 0;  // Size of the payload.
  std::uint64_t head = 0;   // First 8 bytes of the payload.
  friend bool operator==(const Ack&, const Ack&) = default;
};
Ack ack_of(std::string_view payload) noexcept;

std::string_view echo(std::string_view payload);
Task<std::string_view> echo_task(std::string_view payload);
Ack ack(std::string_view payload);
Task<Ack> ack_task(std::string_view payload);

// Processor time of this process, and the time at which it was read.
struct Usage {
  std::int64_t cpu_ns = 0;    // User and system, all threads.
  std::int64_t clock_ns = 0;  // Time of this process's steady clock.
};
Usage usage();

struct ServerFacts {
  std::string poller;
  std::string wait;
  std::string version;
};
ServerFacts describe(Context& context);

}  // namespace hawser::bench
