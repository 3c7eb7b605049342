#include "hawser/channel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/with_timeout.h"

namespace hawser {
namespace {

using std::chrono::milliseconds;

// Runs the body of a test as a coroutine on a loop with virtual time.
class ChannelTest : public testing::Test {
 protected:
  template <class Body>
  void run(Body body) {
    loop.run(body());
  }
  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  std::string order;
};
using WithTimeoutTest = ChannelTest;

TEST_F(ChannelTest, KeepsOrderAndBoundsWhatWaits) {
  run([&]() -> Task<void> {
    Channel<std::unique_ptr<int>> channel(2);
    Scope scope;
    std::size_t most = 0;
    scope.spawn([](Channel<std::unique_ptr<int>>& to, std::size_t& max) -> Task<void> {
      for (int i = 0; i < 100; ++i) {
        const Result<void> sent = co_await to.send(std::make_unique<int>(i));
        EXPECT_TRUE(sent);
        max = std::max(max, to.size());
      }
      to.close();
    }(channel, most));
    int expected = 0;
    for (;;) {
      Result<std::unique_ptr<int>> item = co_await channel.receive();
      if (!item) {
        EXPECT_EQ(item.error().code, ErrorCode::unavailable);
        break;
      }
      EXPECT_EQ(**item, expected++);
    }
    EXPECT_EQ(expected, 100);
    EXPECT_EQ(most, 2U);
  });
}

TEST_F(ChannelTest, CloseRefusesSendersAndKeepsItems) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    EXPECT_TRUE(channel.try_send(7));
    EXPECT_FALSE(channel.try_send(8)) << "there is room for one";
    Scope scope;
    std::optional<Result<void>> sent;
    scope.spawn([](Channel<int>& to, std::optional<Result<void>>& out) -> Task<void> { out = co_await to.send(8); }(
                                                                           channel, sent));
    channel.close();
    co_await scope.join();
    EXPECT_EQ(sent.value().error().code, ErrorCode::unavailable);
    EXPECT_FALSE(channel.try_send(9));
    EXPECT_EQ(channel.try_receive(), 7);
    EXPECT_EQ(channel.try_receive(), std::nullopt);
    const Result<int> none = co_await channel.receive();
    EXPECT_EQ(none.error().code, ErrorCode::unavailable);
  });
}

// The waiting item is reserved for a receiver that has not run yet. Another receiver must not wait for it forever.
TEST_F(ChannelTest, AReceiverAfterCloseDoesNotWaitForAnItemOfAnother) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    Scope scope;
    scope.spawn([](Channel<int>& from) -> Task<void> {
      const Result<int> item = co_await from.receive();
      EXPECT_EQ(item.value(), 7);
    }(channel));
    EXPECT_TRUE(channel.try_send(7));
    channel.close();
    const Result<int> none = co_await channel.receive();
    EXPECT_EQ(none.error().code, ErrorCode::unavailable);
    co_await scope.join();
  });
}

TEST_F(ChannelTest, ReceiveEndsByStop) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    std::stop_source stop;
    stop.request_stop();
    const Result<int> none = co_await channel.receive(stop.get_token());
    EXPECT_EQ(none.error().code, ErrorCode::cancelled);
    EXPECT_TRUE(channel.try_send(1));
    const Result<int> one = co_await channel.receive(stop.get_token());
    EXPECT_EQ(one.value(), 1) << "an item that is there is received";
  });
}

struct Parcel {
  std::unique_ptr<int> content;
  std::string label;
};

TEST_F(ChannelTest, TakesOverANamedItem) {
  run([&]() -> Task<void> {
    Channel<Parcel> channel(2);
    Parcel parcel{.content = std::make_unique<int>(7), .label = "a label that is too long to lie within a string"};
    const Result<void> sent = co_await channel.send(std::move(parcel));
    EXPECT_TRUE(sent);
    EXPECT_EQ(parcel.content, nullptr);
    const Result<Parcel> received = co_await channel.receive();
    EXPECT_EQ(*received.value().content, 7);
    Channel<std::string> texts(2);
    const std::string text = "a text that is too long to lie within a string";
    (void)co_await texts.send(text);
    (void)co_await texts.send("b");
    EXPECT_EQ(texts.try_receive(), text);
    EXPECT_EQ(texts.try_receive(), "b");
  });
}

// Its move operations throw when `throws` is set.
struct Fragile {
  explicit Fragile(bool& on) : throws(&on) {}
  Fragile(Fragile&& other) : throws(other.throws) {
    if (*throws) throw std::runtime_error("does not move");
  }
  bool* throws;
};

TEST_F(ChannelTest, AnItemWhoseMoveThrowsCostsNoRoomAndIsNotLost) {
  run([&]() -> Task<void> {
    bool throws = false;
    Channel<Fragile> channel(1);
    Fragile item(throws);
    throws = true;
    EXPECT_THROW(channel.try_send(std::move(item)), std::runtime_error);
    throws = false;
    EXPECT_TRUE(channel.try_send(std::move(item))) << "the place that was taken for it is free again";
    throws = true;
    EXPECT_THROW(channel.try_receive(), std::runtime_error);
    EXPECT_EQ(channel.size(), 1U);
    throws = false;
    EXPECT_TRUE(channel.try_receive()) << "it can still be received";
    EXPECT_TRUE(channel.try_send(std::move(item)));
    co_return;
  });
}

TEST_F(ChannelTest, CloseRefusesASenderThatHadRoomAlready) {
  run([&]() -> Task<void> {
    Channel<int> channel(1);
    EXPECT_TRUE(channel.try_send(1));
    Scope scope;
    int refused = 0;
    for (int i = 0; i < 3; ++i) {
      scope.spawn([](Channel<int>& to, int& count) -> Task<void> {
        const Result<void> sent = co_await to.send(2);
        if (!sent && sent.error().code == ErrorCode::unavailable) ++count;
      }(channel, refused));
    }
    EXPECT_EQ(channel.try_receive(), 1);
    channel.close();
    co_await scope.join();
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(channel.size(), 0U);
  });
}

TEST_F(WithTimeoutTest, GivesTheResultOrTheDeadline) {
  run([&]() -> Task<void> {
    const auto wait = [this](Duration how_long) {
      return [this, how_long](std::stop_token token) -> Task<Result<int>> {
        const Result<void> slept = co_await loop.sleep(how_long, std::move(token));
        if (!slept) co_return fail(slept.error());
        co_return 5;
      };
    };
    const Time start = loop.now();
    const Result<int> five = co_await with_timeout(milliseconds(10), wait(milliseconds(3)));
    EXPECT_EQ(five.value(), 5);
    const Result<int> late = co_await with_timeout(milliseconds(10), wait(milliseconds(30)));
    EXPECT_EQ(late.error().code, ErrorCode::deadline_exceeded);
    EXPECT_LT(loop.now() - start, milliseconds(14)) << "the work was stopped at its deadline";
    std::stop_source stop;
    stop.request_stop();
    const Result<int> cancelled = co_await with_timeout(milliseconds(10), wait(milliseconds(3)), stop.get_token());
    EXPECT_EQ(cancelled.error().code, ErrorCode::cancelled);
  });
}

TEST_F(WithTimeoutTest, WorkThatIgnoresTheStopIsAwaited) {
  run([&]() -> Task<void> {
    const Time start = loop.now();
    const auto deaf = [this](std::stop_token) -> Task<Result<int>> {
      co_await loop.sleep(milliseconds(30));
      co_return 5;
    };
    const Result<int> outcome = co_await with_timeout(milliseconds(10), deaf);
    EXPECT_EQ(outcome.error().code, ErrorCode::deadline_exceeded);
    EXPECT_GE(loop.now() - start, milliseconds(30));
    const auto throwing = [this](std::stop_token) -> Task<Result<int>> {
      co_await loop.sleep(milliseconds(10));
      throw std::runtime_error("thrown by the work");
    };
    const Result<int> dropped = co_await with_timeout(milliseconds(3), throwing);
    EXPECT_EQ(dropped.error().code, ErrorCode::deadline_exceeded);
    bool thrown = false;
    try {
      (void)co_await with_timeout(milliseconds(30), throwing);
    } catch (const std::runtime_error&) {
      thrown = true;
    }
    EXPECT_TRUE(thrown);
  });
}

TEST_F(WithTimeoutTest, TakesOverNamedWork) {
  run([&]() -> Task<void> {
    auto owner = [content = std::make_unique<int>(7)](std::stop_token) -> Task<Result<int>> { co_return *content; };
    const Result<int> seven = co_await with_timeout(milliseconds(1), std::move(owner));
    EXPECT_EQ(seven.value(), 7);
  });
}

TEST_F(WithTimeoutTest, WorkThatTheParentStopsGivesItsResult) {
  run([&]() -> Task<void> {
    std::stop_source stop;
    Scope scope;
    std::optional<Result<int>> result;
    const auto partial = [this](std::stop_token token) -> Task<Result<int>> {
      (void)co_await loop.sleep(milliseconds(100), std::move(token));
      co_await loop.sleep(milliseconds(50));  // Ends after the time limit, but the stop came first.
      co_return 42;
    };
    scope.spawn([](auto& work, std::stop_token token, std::optional<Result<int>>& out) -> Task<void> {
      out = co_await with_timeout(milliseconds(10), work, std::move(token));
    }(partial, stop.get_token(), result));
    stop.request_stop();
    co_await scope.join();
    EXPECT_EQ(result.value().value(), 42);
  });
}

TEST_F(WithTimeoutTest, AStopCallbackMayDestroyIt) {
  run([&]() -> Task<void> {
    std::optional<Scope> scope(std::in_place);
    scope->spawn([](Loop& on, std::optional<Scope>& owner) -> Task<void> {
      const auto work = [&on, &owner](std::stop_token token) -> Task<Result<int>> {
        const std::stop_callback destroy(token, [&owner] { owner.reset(); });
        co_await on.sleep(milliseconds(100));
        co_return 1;
      };
      (void)co_await with_timeout(milliseconds(5), work);
    }(loop, scope));
    co_await loop.sleep(milliseconds(20));
    EXPECT_FALSE(scope);
  });
}

}  // namespace
}  // namespace hawser
