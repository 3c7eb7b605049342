// Calls from threads that run no loop.
#include "hawser/blocking_client.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/blocking_client/fixture.h"

namespace hawser::blocking_test {

TEST_F(Blocking, CallsFromManyThreadsShareConnections) {
  BlockingOptions two = options();
  two.background.threads = 2;
  two.pool.connections_max = 1;
  const auto shared = client(std::move(two));
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 100; ++j) {
        const std::string text = text_of(j % 10 == 0 ? 30'000 : 20, static_cast<char>('a' + i));
        right += shared->call<echo>(text) == text;
        right += shared->call<add>(i, j) == i + j;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 16 * 100 * 2);
  EXPECT_EQ(server->counters().connections_accepted, 2U);
}

TEST_F(Blocking, ClientsShareLoops) {
  BlockingOptions shared = options();
  shared.loops = BackgroundLoops::start(shared.background);
  const std::weak_ptr<BackgroundLoops> loops = shared.loops;
  {
    const auto one = client(shared);
    const auto other = client(std::move(shared));
    EXPECT_EQ(one->call<add>(1, 2), 3);
    EXPECT_EQ(other->call<add>(3, 4), 7);
    one->close();
    EXPECT_ERROR(one->call<add>(1, 2), unavailable, "the BlockingClient was closed");
    EXPECT_EQ(other->call<add>(5, 6), 11);
  }
  EXPECT_TRUE(loops.expired());
}

TEST_F(Blocking, ErrorsOfHandlersArriveUnchanged) {
  const auto own = client();
  EXPECT_OK(own->connect());
  const Result<void> refused = own->call<refuse>(5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), [] {
    Error expected = Error::application(5, "refused");
    expected.initiator = Initiator::peer;
    return expected;
  }());
}

TEST_F(Blocking, ACallEndsWithItsTimeoutOrItsToken) {
  const auto own = client();
  std::stop_source source;
  std::thread stops([&] {
    gate.until_waiting(1);
    source.request_stop();
  });
  EXPECT_ERROR(own->call<&Gate::wait>(CallOptions{.timeout = patience, .token = source.get_token()}), cancelled,
               "cancelled");
  stops.join();
  EXPECT_TRUE(gate.sees_cancelled(1));
  // On a slow machine the time may be over before the request is sent.
  const auto end = std::chrono::steady_clock::now() + patience;
  while (gate.cancelled.load() < 2 && std::chrono::steady_clock::now() < end) {
    EXPECT_ERROR(own->call<&Gate::wait>(CallOptions{.timeout = 5ms}), deadline_exceeded, "timeout");
  }
  EXPECT_GE(gate.cancelled.load(), 2);
}

TEST_F(Blocking, ACallbackBeginsTheNextCall) {
  const auto own = client();
  std::atomic<int> sum{0};
  const auto wait_for_sum = [&](int expected) {
    for (int now = sum.load(); now != expected; now = sum.load()) sum.wait(now);
  };
  own->then<add>(
      [&](const Result<int>& first) {
        own->then<add>(
            [&](const Result<int>& second) {
              sum.store(second.value_or(-1));
              sum.notify_all();
            },
            CallOptions{.timeout = patience}, first.value_or(-1), 10);
      },
      1, 2);
  wait_for_sum(13);
}

TEST_F(Blocking, ACallbackDestroysTheClient) {
  for (const bool others : {false, true}) {
    BlockingOptions given = options();
    std::shared_ptr<BackgroundLoops> loops;
    if (others) given.loops = loops = BackgroundLoops::start({.threads = 2, .loop = given.background.loop});
    auto own = client(std::move(given));
    std::atomic<bool> over{false};
    // The call that waits ends with the client.
    auto waiting = own->start<&Gate::wait>();
    own->then<add>(
        [&](Result<int> sum) {
          EXPECT_EQ(sum, 3);
          own.reset();
          over.store(true);
          over.notify_all();
        },
        1, 2);
    over.wait(false);
    EXPECT_FALSE(waiting.get());
  }
}

TEST_F(Blocking, ATaskUsesStreams) {
  const auto own = client();
  const Result<int> sum = own->run([](Client& one) -> Task<Result<int>> {
    auto opened = co_await one.open<count>(10);
    if (!opened) co_return std::unexpected(opened.error());
    auto reader = opened->reader();
    int total = 0;
    for (;;) {
      auto item = co_await reader.next();
      if (!item) co_return std::unexpected(item.error());
      if (!*item) break;
      total += **item;
    }
    co_return total;
  });
  EXPECT_EQ(sum, 45);
  EXPECT_THROW(
      {
        const Result<void> never = own->run([](Client&) -> Task<Result<void>> {
          throw std::runtime_error("by the task");
          co_return Result<void>{};
        });
        EXPECT_OK(never);
      },
      std::runtime_error);
}

// ---- Threads that must not block ----

struct Inner {
  Result<int> call_blocking() { return client->call<add>(1, 2); }
  Task<Result<int>> call_in_coroutine() { co_return client->call<add>(1, 2); }
  std::unique_ptr<BlockingClient> client;
};

TEST_F(Blocking, ThreadsOfLoopsAreRefused) {
  const std::string_view text = "would block a thread that runs a loop";
  const auto own = client();
  sync_wait([](BlockingClient& used, std::string_view expected) -> Task<void> {
    EXPECT_ERROR(used.call<add>(1, 2), invalid_argument, expected);
    EXPECT_ERROR(used.connect(), invalid_argument, expected);
    auto started = used.start<add>(1, 2);
    EXPECT_TRUE(started.wait_for(patience));
    EXPECT_EQ(started.get(), 3);
    auto waiting = used.start<&Gate::wait>();
    EXPECT_ERROR(waiting.get(), invalid_argument, expected);
    co_return;
  }(*own, text));
  std::atomic<bool> over{false};
  own->then<add>(
      [&](Result<int>) {
        EXPECT_ERROR(own->call<add>(1, 2), invalid_argument, text);
        over.store(true);
        over.notify_all();
      },
      1, 2);
  over.wait(false);

  Inner inner;
  inner.client = client();
  Server outer({.listen = "127.0.0.1:0"});
  outer.register_handler<&Inner::call_in_coroutine>(&inner);
  outer.register_handler<&Inner::call_blocking>(&inner, {.offload = true});
  ASSERT_TRUE(outer.start());
  BlockingClient calling(outer.address(), options());
  EXPECT_ERROR(calling.call<&Inner::call_in_coroutine>(), invalid_argument, text);
  EXPECT_EQ(calling.call<&Inner::call_blocking>(), 3);
}

// ---- Connections ----

TEST_F(Blocking, AServerThatReturnsIsFound) {
  const std::string address = server->address();
  BlockingOptions given = options();
  given.pool.backoff_max = 5ms;
  given.pool.connect_attempts_max = 1'000'000;  // Until the server is back.
  const auto own = client(std::move(given));
  EXPECT_EQ(own->call<add>(1, 2), 3);
  server.reset();
  // Until the client has seen the end of the connection, a request may still be written to it.
  EXPECT_TRUE(soon([&] {
    const CallOptions brief{.timeout = 5ms};
    return is_error(own->call<add>(brief, 3, 4), ErrorCode::deadline_exceeded, "no connection within");
  }));
  auto started = own->start<add>(3, 4);
  start(address);
  EXPECT_EQ(started.get(), 7);
  EXPECT_EQ(own->call<add>(5, 6), 11);
}

class WithoutServer : public Blocking {
 protected:
  void SetUp() override {}
  static BlockingOptions patient() {
    BlockingOptions given = options();
    given.pool.backoff_min = given.pool.backoff_max = 1h;
    return given;
  }
  static constexpr const char* nowhere = "unix:@hawser-nobody-listens-here";
};

TEST_F(WithoutServer, CallsFailWithTheReason) {
  BlockingOptions given = options();
  given.pool.backoff_min = given.pool.backoff_max = 1ms;
  BlockingClient own(nowhere, std::move(given));
  EXPECT_ERROR(own.call<add>(1, 2), unavailable, "after 3 attempts");
  EXPECT_ERROR(own.connect(), unavailable, "after 3 attempts");
  EXPECT_ERROR(own.start<add>(1, 2).get(), unavailable, "after 3 attempts");
}

// Attempts would be made in vain, so the first error is returned, with its code.
TEST_F(WithoutServer, AWrongAddressIsNoReasonToTryAgain) {
  BlockingOptions given = options();
  given.pool.backoff_min = given.pool.backoff_max = std::chrono::hours(1);
  BlockingClient own("http://127.0.0.1:9000", std::move(given));
  EXPECT_ERROR(own.call<add>(1, 2), invalid_argument, "'http://127.0.0.1:9000' is a URL");
}

TEST_F(WithoutServer, TheTimeoutAndTheTokenEndTheWaitForAConnection) {
  BlockingClient own(nowhere, patient());
  EXPECT_ERROR(own.call<add>(CallOptions{.timeout = 5ms}, 1, 2), deadline_exceeded, "the call was not sent");
  std::stop_source source;
  auto waiting = own.start<add>(CallOptions{.token = source.get_token()}, 1, 2);
  EXPECT_FALSE(waiting.wait_for(2ms));
  source.request_stop();
  EXPECT_ERROR(waiting.get(), cancelled, "cancelled");
  EXPECT_ERROR(own.call<add>(CallOptions{.token = source.get_token()}, 1, 2), cancelled, "cancelled");
  auto dropped = own.start<add>(1, 2);
  dropped.cancel();
  EXPECT_ERROR(dropped.get(), cancelled, "cancelled");
}

TEST_F(WithoutServer, WaitingCallsAreBounded) {
  BlockingOptions given = patient();
  given.pool.client.calls_in_flight_max = 3;
  BlockingClient own(nowhere, std::move(given));
  std::vector<StartedCall<add>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(own.start<add>(i, i));
  EXPECT_ERROR(calls[3].get(), overloaded, "has 3 calls already (calls_in_flight_max)");
  own.close();
  EXPECT_ERROR(calls[0].get(), unavailable, "the BlockingClient was closed");
}

// ---- The end ----

TEST_F(Blocking, IsDestroyedWhileThreadsCall) {
  for (int round = 0; round < 10; ++round) {
    BlockingOptions two = options();
    two.background.threads = 1 + round % 2;
    auto own = client(std::move(two));
    const int before = gate.waiting.load();
    constexpr int callers = 6;
    std::atomic<int> failed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&, used = own.get()] {
        const Result<int> reply = used->call<&Gate::wait>();
        EXPECT_ERROR(reply, outcome_unknown, "closed");
        failed += !reply;
      });
    }
    gate.until_waiting(before + callers);
    own.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed.load(), callers);
  }
}

// For the sanitizers: calls begin, end and fail while the client is closed.
TEST_F(Blocking, IsClosedAtAnyMoment) {
  for (int round = 0; round < 20; ++round) {
    const auto own = client();
    std::vector<std::thread> threads;
    std::atomic<int> calls{0};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (;;) {
          const Result<std::string> reply = own->call<echo>("hello");
          ++calls;
          calls.notify_all();
          if (reply) continue;
          EXPECT_NE(reply.error().code, ErrorCode::internal) << error_of(reply);
          break;
        }
      });
    }
    for (int now = calls.load(); now < 4 * round; now = calls.load()) calls.wait(now);
    own->close();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(Blocking, AChildProcessIsRefused) {
  const auto own = client();
  EXPECT_EQ(own->call<add>(1, 2), 3);
  auto of_parent = own->start<&Gate::wait>();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // No assertions here: the child must not return to the test.
    int wrong = 0;
    const auto refused = [&](const Result<int>& result) {
      wrong += result || result.error().code != ErrorCode::invalid_argument ||
               result.error().text.find("after fork()") == std::string::npos;
    };
    refused(own->call<add>(1, 2));
    refused(own->start<add>(1, 2).get());
    bool ended = false;
    own->start<add>(1, 2).then([&](const Result<int>& result) {
      refused(result);
      ended = true;
    });
    of_parent.then(refused);
    bool called = false;
    own->then<add>(
        [&](const Result<int>& result) {
          refused(result);
          called = true;
        },
        1, 2);
    own->close();
    _exit(called && ended ? wrong : 10);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(own->call<add>(3, 4), 7);
  gate.open.store(true);
  EXPECT_EQ(of_parent.get(), 7);
}

}  // namespace hawser::blocking_test
