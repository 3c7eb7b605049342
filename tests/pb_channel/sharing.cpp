// Channels that share connections.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/interceptor.h"
#include "hawser/protobuf_channel.h"
#include "tests/pb_channel/fixture.h"

// ThreadSanitizer allows no threads in a child of a process with threads.
#if defined(__SANITIZE_THREAD__)
#define HAWSER_TEST_THREADS_OF_NO_CHILD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAWSER_TEST_THREADS_OF_NO_CHILD 1
#endif
#endif

namespace hawser::pb {
namespace {

class PbSharing : public PbChannel {
 protected:
  static std::string text_of_call(Channel& channel, const std::string& text) {
    Controller controller;
    probe::Receipt receipt;
    const probe::Parcel request = parcel(text);
    probe::PostService_Stub(&channel).Deliver(&controller, &request, &receipt, nullptr);
    return controller.Failed() ? controller.ErrorText() : receipt.text();
  }
  std::uint64_t accepted() const { return server.counters().connections_accepted; }
  bool all_close() const {
    return soon([this] { return server.counters().connections_open == 0; });
  }
};

INSTANTIATE_TEST_SUITE_P(Protocols, PbSharing, ::testing::Values("baidu_std", "hawser"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(PbSharing, EqualOptionsMeanOneConnectionUntilTheLastChannelEnds) {
  auto first = channel();
  EXPECT_EQ(text_of_call(*first, "a"), "a 0");
  options.max_retry = 1;
  options.timeout_ms += 1000;
  options.backup_request_ms = options.timeout_ms;
  options.client.call_timeout = forever;
  options.client.transports = {};  // Another object of equal content.
  auto second = channel();
  EXPECT_EQ(text_of_call(*second, "b"), "b 0");
  EXPECT_EQ(accepted(), 1U);
  first.reset();
  EXPECT_EQ(text_of_call(*second, "c"), "c 0");
  EXPECT_EQ(accepted(), 1U);
  EXPECT_EQ(server.counters().connections_open, 1U);
  second.reset();
  EXPECT_TRUE(all_close());
  // Nothing remains of the first ones.
  EXPECT_EQ(text_of_call(*channel(), "d"), "d 0");
  EXPECT_EQ(accepted(), 2U);
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, TheTimeoutAndTheRetriesAreThoseOfTheChannel) {
  const auto patient = channel();
  options.timeout_ms = 20;
  const auto hasty = channel();
  Controller kept;
  Controller late;
  probe::Receipt receipt;
  probe::Receipt none;
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(patient.get()).Hold(&kept, &request, &receipt, DoNothing());
  ASSERT_TRUE(soon([&] { return office.holding == 1; }));
  probe::PostService_Stub(hasty.get()).Hold(&late, &request, &none, nullptr);
  EXPECT_EQ(late.ErrorCode(), ERPCTIMEDOUT) << late.ErrorText();
  office.release();
  Join(kept.call_id());
  EXPECT_FALSE(kept.Failed()) << kept.ErrorText();
  EXPECT_EQ(accepted(), 1U);
}

TEST_P(PbSharing, EachOtherOptionMeansAnotherConnection) {
  std::vector<std::unique_ptr<Channel>> channels;
  const auto added = [&](const ChannelOptions& with) {
    const std::uint64_t before = accepted();
    auto made = std::make_unique<Channel>();
    EXPECT_EQ(made->Init(address, &with), 0) << made->error_text();
    EXPECT_EQ(text_of_call(*made, "x"), "x 0");
    channels.push_back(std::move(made));
    return accepted() - before;
  };
  const auto nothing = [](OutgoingCall&, Next next) -> Task<Result<void>> { co_return co_await next(); };
  const std::vector<void (*)(ChannelOptions&)> changes{
      [](ChannelOptions&) {},
      [](ChannelOptions& to) { to.protocol = to.protocol == "hawser" ? "baidu_std" : "hawser"; },
      [](ChannelOptions& to) { to.connection_type = "pooled"; },
      [](ChannelOptions& to) { to.connection_group = "a"; },
      [](ChannelOptions& to) { to.connection_group = "b"; },
      [](ChannelOptions& to) { to.connect_timeout_ms += 1; },
      [](ChannelOptions& to) { to.connections_idle_max += 1; },
      [](ChannelOptions& to) { to.credential = "secret"; },
      [](ChannelOptions& to) { to.client.calls_in_flight_max -= 1; },
      [](ChannelOptions& to) { to.client.message_bytes_max -= 1; },
      [](ChannelOptions& to) { to.client.send_backlog_bytes_max -= 1; },
      [](ChannelOptions& to) { to.client.stream_window_bytes -= 1; },
      [](ChannelOptions& to) { to.client.decode_limits.depth_max -= 1; },
      [](ChannelOptions& to) { to.client.ping_interval *= 2; },
      [](ChannelOptions& to) { to.client.checksum = true; },
      [](ChannelOptions& to) { to.client.transports.enabled.clear(); },
      [](ChannelOptions& to) { to.client.transports.enable(shm({.ring_bytes = 128 * 1024})); },
      [](ChannelOptions& to) { to.client.transports.retry_min *= 2; },
      [](ChannelOptions& to) { to.loops = BackgroundLoops::start(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    ChannelOptions with = options;
    changes[i](with);
    EXPECT_EQ(added(with), 1U) << i;
    EXPECT_EQ(added(with), 0U) << i;
  }
  ChannelOptions with = options;
  with.client.interceptors = {client_interceptor(nothing)};
  EXPECT_EQ(added(with), 1U);
  EXPECT_EQ(added(with), 0U);
  with.client.interceptors = {client_interceptor(nothing)};
  EXPECT_EQ(added(with), 1U);
  channels.clear();
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, ShortConnectionsEndWithTheirCalls) {
  options.connection_type = "short";
  const auto one = channel();
  const auto other = channel();
  for (std::uint64_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(text_of_call(i % 2 != 0 ? *one : *other, "x"), "x 0");
    EXPECT_EQ(accepted(), i);
  }
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, PooledConnectionsGrowWithTheCallsAndAreKept) {
  options.connection_type = "pooled";
  options.connections_idle_max = 4;
  constexpr int calls = 6;
  auto one = channel();
  auto other = channel();
  std::vector<std::unique_ptr<Controller>> controllers;
  std::vector<std::unique_ptr<probe::Receipt>> receipts;
  const probe::Parcel request = parcel("x");
  for (int i = 0; i < calls; ++i) {
    controllers.push_back(std::make_unique<Controller>());
    receipts.push_back(std::make_unique<probe::Receipt>());
    probe::PostService_Stub(i % 2 == 0 ? one.get() : other.get())
        .Hold(controllers.back().get(), &request, receipts.back().get(), DoNothing());
  }
  ASSERT_TRUE(soon([&] { return office.holding == calls; }));
  EXPECT_EQ(server.counters().connections_open, static_cast<std::uint64_t>(calls));
  office.release();
  for (const auto& controller : controllers) {
    Join(controller->call_id());
    EXPECT_FALSE(controller->Failed()) << controller->ErrorText();
  }
  EXPECT_TRUE(soon([&] { return server.counters().connections_open == options.connections_idle_max; }));
  for (int i = 0; i < 2 * calls; ++i) EXPECT_EQ(text_of_call(i % 2 == 0 ? *one : *other, "x"), "x 0");
  EXPECT_EQ(accepted(), static_cast<std::uint64_t>(calls));
  one.reset();
  EXPECT_EQ(text_of_call(*other, "x"), "x 0");
  EXPECT_EQ(accepted(), static_cast<std::uint64_t>(calls));
  other.reset();
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, ThreadsThatMakeChannelsAtOnceGetOneConnection) {
  constexpr int count = 8;
  std::latch ready{count};
  std::latch called{count};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      const auto own = channel();
      EXPECT_EQ(text_of_call(*own, "x"), "x 0");
      called.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(accepted(), 1U);
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, ThreadsMakeAndDestroyChannelsWhileCallsAreInFlight) {
  office.open = true;
  std::vector<std::thread> threads;
  std::atomic<int> ended{0};
  constexpr int each = 30;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      ChannelOptions with = options;
      const char* const types[] = {"single", "pooled", "short"};
      for (int k = 0; k < each; ++k) {
        with.connection_type = types[(i + k) % 3];
        auto own = std::make_unique<Channel>();
        ASSERT_EQ(own->Init(address, &with), 0) << own->error_text();
        struct Call {
          Controller controller;
          probe::Receipt receipt;
        };
        auto call = std::make_shared<Call>();
        const CallId id = call->controller.call_id();
        const probe::Parcel request = parcel("x");
        probe::PostService_Stub(own.get()).Hold(&call->controller, &request, &call->receipt, new Then([&, call] {
          EXPECT_TRUE(!call->controller.Failed() || call->controller.ErrorCode() == ECANCELED)
              << call->controller.ErrorText();
          ++ended;
        }));
        call.reset();
        if (k % 3 == 0) StartCancel(id);
        own.reset();
        if (k % 2 == 0) Join(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(soon([&] { return ended == 8 * each; }));
  EXPECT_TRUE(all_close());
}

TEST_P(PbSharing, ADoneThatDropsTheLastChannelClosesTheConnection) {
  auto last = channel();
  struct Call {
    Controller controller;
    probe::Receipt receipt;
  } call;
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(last.get()).Deliver(&call.controller, &request, &call.receipt, new Then([&] {
    last.reset();
  }));
  Join(call.controller.call_id());
  EXPECT_FALSE(call.controller.Failed()) << call.controller.ErrorText();
  EXPECT_TRUE(all_close());
}

// A lost connection is replaced for all channels, by one.
TEST_P(PbSharing, AServerThatReturnsIsFoundByAllChannels) {
  const auto one = channel();
  const auto other = channel();
  EXPECT_EQ(text_of_call(*one, "x"), "x 0");
  server.stop(Duration(0));
  Server again(ServerOptions{.listen = address});
  again.enable(baidu_std());
  add_service(again, &office);
  ASSERT_TRUE(again.start());
  // The end of the connection may be seen after the first of these calls.
  EXPECT_TRUE(soon([&] { return text_of_call(*other, "y") == "y 0"; }));
  EXPECT_EQ(text_of_call(*one, "z"), "z 0");
  EXPECT_EQ(again.counters().connections_accepted, 1U);
  again.stop(Duration(0));
}

// baidu_std has no message by which a server announces that it stops.
class PbSharingOfHawser : public PbSharing {};
INSTANTIATE_TEST_SUITE_P(Protocols, PbSharingOfHawser, ::testing::Values("hawser"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(PbSharingOfHawser, AServerThatStopsIsLeftToItsCalls) {
  const auto made = channel();
  Controller held;
  probe::Receipt receipt;
  const probe::Parcel request = parcel("x");
  probe::PostService_Stub(made.get()).Hold(&held, &request, &receipt, DoNothing());
  ASSERT_TRUE(soon([&] { return office.holding == 1; }));
  std::thread stopping([&] { server.stop(patience); });
  std::unique_ptr<Server> next;
  EXPECT_TRUE(soon([&] {
    next = std::make_unique<Server>(ServerOptions{.listen = address});
    add_service(*next, &office);
    return next->start().has_value();
  }));
  EXPECT_TRUE(soon([&] { return text_of_call(*made, "y") == "y 0"; }));
  EXPECT_EQ(next->counters().connections_accepted, 1U);
  office.release();
  Join(held.call_id());
  EXPECT_FALSE(held.Failed()) << held.ErrorText();
  stopping.join();
  EXPECT_EQ(text_of_call(*made, "z"), "z 0");
  EXPECT_EQ(next->counters().connections_accepted, 1U);
}

#ifndef HAWSER_TEST_THREADS_OF_NO_CHILD
// The parent's connections are not used, although the options are equal.
TEST_P(PbSharing, AChildProcessMakesConnectionsOfItsOwn) {
  const auto parents = channel();
  EXPECT_EQ(text_of_call(*parents, "x"), "x 0");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Channel own;
    if (own.Init(address, &options) != 0) _exit(1);
    _exit(text_of_call(own, "y") == "y 0" ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(accepted(), 2U);
  EXPECT_EQ(text_of_call(*parents, "z"), "z 0");
  EXPECT_EQ(accepted(), 2U);
}
#endif

}  // namespace
}  // namespace hawser::pb
