#include <string>
#include <utility>

#include "tests/simulation/call_material.h"
#include "tests/simulation/client_actor.h"
#include "transport/network_access.h"

namespace hawser::simulation {

using std::chrono::milliseconds;

PoolActor::PoolActor(World& world)
    : world_(world), pool_(ClientPool::create(world.loop, "server:9000", over(world.network, world.plan.pool))) {}

Task<void> PoolActor::run() {
  for (unsigned calls = 0; calls < world_.plan.calls; ++calls) {
    while (calls_.size() >= world_.plan.calls_at_once) {
      co_await world_.pause(milliseconds(2));
    }
    switch (world_.below(3)) {
      case 0: calls_.spawn(echo()); break;
      case 1: calls_.spawn(pipelined()); break;
      default: calls_.spawn(slow());
    }
    if (world_.random.chance(0.4)) {
      co_await world_.pause(milliseconds(world_.random.chance(0.1) ? 500 : 2));
    }
    // Connections to a stopping server are not counted in the limit.
    world_.checker.expect(world_.plan.profile.restarts || pool_->connections() <= world_.plan.pool.connections_max,
                          "a pool has too many connections");
  }
  if (world_.plan.profile.drops && world_.random.chance(0.3)) calls_.clear();
  while (!calls_.empty()) {
    co_await calls_.join();
  }
  // Meanwhile idle connections are closed.
  if (world_.random.chance(0.5)) {
    co_await world_.loop.sleep(world_.plan.pool.idle_timeout * 2 + std::chrono::seconds(30));
    world_.checker.expect(pool_->connections() == 0, "a pool keeps idle connections");
  }
}

void PoolActor::ended(CallGuard& guard, const Error& error) {
  const Profile& profile = world_.plan.profile;
  const bool losses = profile.faults || profile.transports || profile.restarts;
  bool expected = false;
  switch (error.code) {
    case ErrorCode::overloaded: expected = profile.limits && names_small_limit(world_.plan, error.text); break;
    case ErrorCode::limit_exceeded: expected = profile.limits; break;
    case ErrorCode::unavailable: expected = losses || profile.limits || profile.slow; break;
    case ErrorCode::cancelled: expected = profile.restarts; break;
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown: expected = losses; break;
    case ErrorCode::deadline_exceeded: expected = profile.faults || profile.transports || profile.slow; break;
    default: break;
  }
  world_.checker.expect(expected, "failed for no reason: " + error.describe(), guard.id);
  guard.failed(error, losses);
}

Task<void> PoolActor::echo() {
  CallGuard guard(world_.checker, "pool echo");
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const Result<std::string> reply =
      co_await pool_->call<&Service::echo>(guard.id, content(guard.id, draw_size(world_.random)), reply_bytes);
  if (!reply) co_return ended(guard, reply.error());
  guard.replied();
  world_.checker.expect(reply->size() == reply_bytes && is_content(guard.id ^ reply_mark, *reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> PoolActor::slow() {
  CallGuard guard(world_.checker, "pool slow");
  const std::uint32_t reply_bytes = draw_size(world_.random);
  const auto sleep_us = static_cast<std::uint32_t>(world_.below(20'000));
  const Result<std::string> reply = co_await pool_->call<&Service::slow>(
      guard.id, content(guard.id, draw_size(world_.random)), reply_bytes, sleep_us);
  if (!reply) co_return ended(guard, reply.error());
  guard.replied();
  world_.checker.expect(reply->size() == reply_bytes && is_content(guard.id ^ reply_mark, *reply),
                        "a reply has another's bytes", guard.id);
}

Task<void> PoolActor::pipelined() {
  CallGuard guard(world_.checker, "pool pipelined");
  const Material data(guard.id, draw_size(world_.random));
  Result<PendingCall<&Service::mirror>> sent = co_await pool_->send_request(
      [&](Client& client) { return client.send_request<&Service::mirror>(guard.id, data.text); });
  if (!sent) co_return ended(guard, sent.error());
  const Result<std::string> reply = co_await std::move(*sent);
  if (!reply) co_return ended(guard, reply.error());
  guard.replied();
  world_.checker.expect(reply->size() == data.text.size() && is_content(guard.id, *reply),
                        "a reply has another's bytes", guard.id);
}

}  // namespace hawser::simulation
