#include "tests/simulation/plan.h"

#include <algorithm>
#include <iterator>

#include "transport/sim/sim_transport.h"

namespace hawser::simulation {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint32_t draw_size(Random& random) {
  const std::uint64_t which = random.below(100);
  if (which < 20) return static_cast<std::uint32_t>(random.below(16));
  if (which < 65) return static_cast<std::uint32_t>(random.below(2048));
  if (which < 80) return static_cast<std::uint32_t>(8 * 1024 - 32 + random.below(64));
  if (which < 90) return static_cast<std::uint32_t>(random.below(32 * 1024));
  if (which < 98) return static_cast<std::uint32_t>(32 * 1024 - 64 + random.below(64 * 1024));
  return static_cast<std::uint32_t>(random.below(1024 * 1024));
}

Plan draw_plan(const Profile& profile, Random& random) {
  const auto between = [&](std::uint64_t least, std::uint64_t most) { return least + random.below(most - least + 1); };
  const auto size_between = [&](std::uint64_t least, std::uint64_t most) {
    return static_cast<std::size_t>(between(least, most));
  };
  Plan plan{.profile = profile};
  plan.clients = static_cast<unsigned>(between(1, 4));
  plan.pools = static_cast<unsigned>(random.below(2));
  plan.calls = static_cast<unsigned>(between(5, 40));
  plan.calls_at_once = static_cast<unsigned>(between(1, 24));
  plan.server.listen = "server:9000";
  plan.server.exception_texts = true;  // The texts are checked.
  plan.server.ping_interval = milliseconds(between(200, 2000));
  plan.client.ping_interval = milliseconds(between(200, 2000));
  plan.server.checksum = random.chance(0.7);
  plan.client.checksum = random.chance(0.3);
  plan.client.call_timeout = random.chance(0.3) ? forever : Duration(seconds(between(5, 40)));
  plan.client.connect_timeout = milliseconds(between(200, 3000));
  plan.server.handshake_timeout = milliseconds(between(200, 3000));
  plan.network.delay_min = microseconds(between(1, 50));
  plan.network.delay_max = plan.network.delay_min + microseconds(between(1, random.chance(0.2) ? 20'000 : 500));

  if (profile.slow) {
    // Bytes in the buffers of a slow network may delay a PING for seconds.
    plan.server.ping_interval = seconds(between(5, 10));
    plan.client.ping_interval = seconds(between(5, 10));
    plan.network.buffer_bytes_min = size_between(1024, 8 * 1024);
    plan.network.buffer_bytes_max = plan.network.buffer_bytes_min + size_between(0, 128 * 1024);
    plan.network.short_send = 0.5 * static_cast<double>(random.below(3)) / 2;
    plan.network.short_receive = 0.5 * static_cast<double>(random.below(3)) / 2;
    plan.network.short_receive_bytes_max = size_between(1, 256);
    plan.network.slow_receive = 0.3 * static_cast<double>(random.below(2));
    plan.network.slow_receive_max = microseconds(between(10, 3000));
    if (random.chance(0.3)) plan.network.bytes_per_second = between(1, 50) * 1'000'000;
  }
  if (profile.faults) {
    plan.network.reset = 0.6 * static_cast<double>(random.below(3)) / 2;
    plan.network.vanish = 0.4 * static_cast<double>(random.below(3)) / 2;
    plan.network.refuse = 0.2 * static_cast<double>(random.below(2));
    plan.network.unanswered = 0.1 * static_cast<double>(random.below(2));
    plan.network.fault_bytes_max = random.chance(0.5) ? size_between(1, 4 * 1024) : size_between(1, 512 * 1024);
    plan.network.fault_after_max = milliseconds(between(1, 1000));
  }
  if (profile.limits) {
    // A random part of the limits is small, so that each limit is at some time the first to be reached.
    const auto limit = [&](std::size_t& field, std::uint64_t least, std::uint64_t most) {
      if (random.chance(0.4)) field = size_between(least, most);
    };
    const auto window = [&](std::uint32_t& field) {
      if (random.chance(0.6)) field = static_cast<std::uint32_t>(between(1, 4096));
    };
    limit(plan.server.calls_per_connection_max, 1, 12);
    limit(plan.server.calls_max, 2, 30);
    limit(plan.client.calls_in_flight_max, 1, 12);
    limit(plan.server.send_backlog_bytes_max, 1, 64 * 1024);
    limit(plan.client.send_backlog_bytes_max, 1, 64 * 1024);
    limit(plan.server.receive_bytes_max, 40 * 1024, 512 * 1024);
    limit(plan.server.connections_max, 1, 6);
    limit(plan.server.handshakes_max, 1, 4);
    limit(plan.server.message_bytes_max, 1024, 128 * 1024);
    limit(plan.client.message_bytes_max, 1024, 128 * 1024);
    // The memory for received messages must have room for one message.
    plan.server.message_bytes_max = std::min(plan.server.message_bytes_max, plan.server.receive_bytes_max);
    window(plan.server.stream_window_bytes);
    window(plan.client.stream_window_bytes);
  }
  if (profile.transports) {
    plan.network.make_transport = &transport::make_sim_transport;
    plan.network.transport_absent = 0.2 * static_cast<double>(random.below(2));
    plan.network.transport_declined = 0.3 * static_cast<double>(random.below(2));
    plan.network.transport_reset = 0.6 * static_cast<double>(random.below(3)) / 2;
    plan.network.transport_vanish = 0.4 * static_cast<double>(random.below(3)) / 2;
    if (!profile.faults) plan.network.fault_after_max = milliseconds(between(1, 1000));
    plan.server.transports.order = {"simpath"};
    plan.client.transports.order = {"simpath"};
    plan.client.transports.retry_min = milliseconds(between(1, 100));
    plan.client.transports.retry_max = milliseconds(between(100, 2000));
  }
  if (profile.restarts) plan.servers = static_cast<unsigned>(between(1, 4));

  plan.pool.backoff_seed = random.next() | 1;
  plan.pool.client = plan.client;
  plan.pool.connections_max = size_between(1, 4);
  plan.pool.calls_per_connection = size_between(1, 8);
  plan.pool.idle_timeout = milliseconds(between(50, 3000));
  plan.pool.backoff_max = milliseconds(between(20, 500));
  return plan;
}

bool names_small_limit(const Plan& plan, std::string_view text) {
  const ServerOptions server;
  const ClientOptions client;
  const struct {
    std::string_view name;
    bool small;
  } limits[] = {
      {"calls_per_connection_max", plan.server.calls_per_connection_max < server.calls_per_connection_max},
      {"calls_in_flight_max", plan.client.calls_in_flight_max < client.calls_in_flight_max},
      {"calls_max", plan.server.calls_max < server.calls_max},
      {"send_backlog_bytes_max", plan.client.send_backlog_bytes_max < client.send_backlog_bytes_max},
      {"receive_bytes_max", plan.server.receive_bytes_max < server.receive_bytes_max},
      {"connections_max", plan.server.connections_max < server.connections_max},
      {"handshakes_max", plan.server.handshakes_max < server.handshakes_max},
  };
  return std::any_of(std::begin(limits), std::end(limits),
                     [&](const auto& limit) { return limit.small && text.find(limit.name) != std::string_view::npos; });
}

}  // namespace hawser::simulation
