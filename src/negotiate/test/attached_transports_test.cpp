#include "negotiate/attached_transports.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>

#include "exec/sim_poller.h"
#include "hawser/log.h"
#include "negotiate/transport_backoff.h"

// State of transports that a client or server keeps between connections.
namespace hawser::negotiate {
namespace {

using namespace std::chrono_literals;

// A worker whose device has gone is released. The device is looked for again when connections are made, but not for
// each of them.
TEST(AttachedTransports, AnEndWhoseDeviceIsGoneIsReplaced) {
  struct End final : transport::TransportWorker {
    bool usable() const noexcept override { return alive; }
    std::vector<std::byte> offer() override { return {}; }
    Result<std::unique_ptr<transport::PendingConnection>> select(Bytes, const transport::MessageLimits&) override {
      return fail(ErrorCode::unavailable, "not asked for");
    }
    Result<std::unique_ptr<transport::PendingConnection>> accept(Bytes, const transport::MessageLimits&) override {
      return fail(ErrorCode::unavailable, "not asked for");
    }
    bool alive = true;
  };
  struct Card final : transport::Transport {
    std::string_view name() const noexcept override { return "rdma"; }
    Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
      ++attempts;
      if (!present) return fail(ErrorCode::unavailable, "no card");
      auto made = std::make_shared<End>();
      worker = made;
      return std::shared_ptr<transport::TransportWorker>(std::move(made));
    }
    bool present = true;
    int attempts = 0;
    std::weak_ptr<End> worker;
  };
  Loop loop(std::make_unique<exec::SimPoller>(), {.log = no_log()});
  const auto card = std::make_shared<Card>();
  AttachedTransports transports(loop, {card}, 1s);
  loop.run([](Loop& on, AttachedTransports& tried, Card& device) -> Task<void> {
    tried.attach();
    tried.attach();
    EXPECT_EQ(device.attempts, 1);
    EXPECT_FALSE(device.worker.expired());
    if (device.worker.expired()) co_return;
    device.worker.lock()->alive = false;
    device.present = false;
    co_await on.sleep(1s);
    tried.attach();
    EXPECT_TRUE(device.worker.expired()) << "kept though it is of no use";
    EXPECT_EQ(tried.all()[0].worker, nullptr);
    EXPECT_EQ(tried.all()[0].reason, "no card");
    device.present = true;
    tried.attach();
    EXPECT_EQ(device.attempts, 2) << "looked for again at once";
    co_await on.sleep(1s);
    tried.attach();
    EXPECT_NE(tried.all()[0].worker, nullptr);
    EXPECT_EQ(device.attempts, 3);
  }(loop, transports, *card));
}

// An exception of one transport, for example without memory, concerns this transport alone, now and later.
TEST(AttachedTransports, AnExceptionOfOneLeavesTheOthers) {
  struct Card final : transport::Transport {
    Card(std::string_view called, bool throwing) : named(called), throws(throwing) {}
    std::string_view name() const noexcept override { return named; }
    Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
      ++attempts;
      if (throws) throw std::runtime_error("the driver is broken");
      return fail(ErrorCode::unavailable, "no card");
    }
    const std::string_view named;
    bool throws;
    int attempts = 0;
  };
  Loop loop(std::make_unique<exec::SimPoller>(), {.log = no_log()});
  const auto broken = std::make_shared<Card>("broken", true);
  const auto absent = std::make_shared<Card>("absent", false);
  AttachedTransports transports(loop, {broken, absent}, Duration::zero());
  loop.run([](AttachedTransports& tried, Card& one, Card& other) -> Task<void> {
    for (int attempts = 1; attempts <= 2; ++attempts) {
      tried.attach();
      EXPECT_EQ(one.attempts, attempts);
      EXPECT_EQ(other.attempts, attempts);
      EXPECT_EQ(tried.all().size(), 2U);
      if (tried.all().size() != 2) co_return;
      EXPECT_EQ(tried.all()[0].reason, "an exception: the driver is broken");
      EXPECT_EQ(tried.all()[1].reason, "no card");
    }
    co_return;
  }(transports, *broken, *absent));
}

// Memory may be there again at once, so a transport that could not be prepared without it does not wait for retry_min.
TEST(AttachedTransports, OneWithoutMemoryIsTriedAgainAtOnce) {
  struct Card final : transport::Transport {
    Card(std::string_view called, int times) : named(called), failures(times) {}
    std::string_view name() const noexcept override { return named; }
    Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
      if (++attempts <= failures) throw std::bad_alloc();
      return fail(ErrorCode::unavailable, "no card");
    }
    const std::string_view named;
    const int failures;
    int attempts = 0;
  };
  Loop loop(std::make_unique<exec::SimPoller>(), {.log = no_log()});
  const auto poor = std::make_shared<Card>("poor", 2);
  const auto absent = std::make_shared<Card>("absent", 0);
  AttachedTransports transports(loop, {poor, absent}, 1s);
  loop.run([](AttachedTransports& tried, Card& one, Card& other) -> Task<void> {
    for (const int attempts : {1, 2}) {
      tried.attach();
      EXPECT_EQ(tried.all()[0].reason, "out of memory");
      EXPECT_EQ(one.attempts, attempts);
    }
    for (int i = 0; i < 2; ++i) tried.attach();
    EXPECT_EQ(tried.all()[0].reason, "no card");
    EXPECT_EQ(one.attempts, 3) << "not tried again, or again before retry_min";
    EXPECT_EQ(other.attempts, 1) << "tried again before retry_min";
    co_return;
  }(transports, *poor, *absent));
}

TEST(TransportBackoff, PausesGrowToTheirBoundAndAreForgiven) {
  const TransportOptions options{.retry_min = 1s, .retry_max = 8s};
  TransportBackoff health;
  Time now{1000s};
  EXPECT_EQ(health.next_try(), Time::max());
  const auto pause = [&] {
    health.carries("rdma", now);
    health.broke("rdma", "the link went down", now, options);
    return health.next_try() - now;
  };
  for (const Duration expected : {1s, 2s, 4s, 8s, 8s}) EXPECT_EQ(pause(), expected);
  ASSERT_EQ(health.avoided(now).size(), 1U);
  EXPECT_EQ(health.avoided(now)[0].reason, "it broke: the link went down");
  EXPECT_TRUE(health.avoided(now + 8s).empty());
  now += 8s;
  health.carries("rdma", now);
  now += 8s;
  health.broke("rdma", "again", now, options);
  EXPECT_EQ(health.next_try() - now, 1s) << "it had held for retry_max";
  now += 1s;
  health.tried_in_vain(now, options);
  EXPECT_EQ(health.next_try() - now, 2s);
  EXPECT_EQ(health.avoided(now).size(), 1U);
  health.carries("rdma", now);
  EXPECT_EQ(health.next_try(), Time::max());
}

// A peer that finds a fault of the transport first closes the connection.
TEST(TransportBackoff, ATransportWhoseConnectionsEndSoonHasBroken) {
  const TransportOptions options{.retry_min = 1s, .retry_max = 8s};
  TransportBackoff health;
  Time now{1000s};
  // Returns whether the transport has broken.
  const auto end_after = [&](Duration time) {
    health.carries("rdma", now);
    now += time;
    return health.ended("rdma", "end of stream", now, options);
  };
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(end_after(1s));
    EXPECT_FALSE(end_after(1s));
    EXPECT_EQ(health.next_try(), Time::max());
    EXPECT_FALSE(end_after(8s)) << "it had held for retry_max";
  }
  for (const Duration pause : {1s, 2s, 4s}) {
    EXPECT_FALSE(end_after(7s));
    EXPECT_FALSE(end_after(1s));
    EXPECT_TRUE(end_after(1s));
    EXPECT_EQ(health.next_try() - now, pause);
    ASSERT_EQ(health.avoided(now).size(), 1U);
    EXPECT_EQ(health.avoided(now)[0].reason,
              "it broke: the peer closed 3 connections over it soon after they began: end of stream");
    now += pause;
  }
}

// Each try is a connection to the server.
TEST(TransportBackoff, PausesGrowFromAMillisecondIfTheOptionsHaveNone) {
  for (const Duration none : {Duration::zero(), Duration(-1), Duration::min()}) {
    for (const Duration most : {Duration::zero(), Duration::min(), Duration(5ms)}) {
      const TransportOptions options{.retry_min = none, .retry_max = most};
      TransportBackoff health;
      Time now{1000s};
      health.broke("rdma", "the link went down", now, options);
      for (Duration expected = 1ms; expected <= 8ms; expected *= 2) {
        EXPECT_EQ(health.next_try() - now, std::clamp<Duration>(most, 1ms, expected));
        now = health.next_try();
        health.tried_in_vain(now, options);
      }
    }
  }
}

}  // namespace
}  // namespace hawser::negotiate
