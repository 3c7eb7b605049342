#include "hawser/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "hawser/hawser.h"
#include "tests/testing.h"

// Calls that are made again by a policy.
namespace hawser {
namespace retried {

using namespace testing_tools;

std::atomic<int> runs{0};

// Fails with the codes of `codes`, one at each run, then succeeds. `Z` is an application's error with code 7.
Result<int> flaky(std::string_view codes) {
  const int run = runs.fetch_add(1);
  if (static_cast<std::size_t>(run) >= codes.size()) return run;
  switch (codes[static_cast<std::size_t>(run)]) {
    case 'o': return fail(ErrorCode::overloaded, "overloaded");
    case 'u': return fail(ErrorCode::outcome_unknown, "outcome unknown");
    case 'm': return fail(ErrorCode::unknown_method, "unknown method");
    case 'Z': return std::unexpected(Error::application(7, "seven"));
    default: return fail(ErrorCode::internal, "internal");
  }
}

class Retries : public ::testing::Test {
 protected:
  Retries() {
    runs.store(0);
    server.register_handler<flaky>();
    EXPECT_TRUE(server.start());
    policy.backoff_first = 1ms;
  }
  // Runs `work` with a connected client.
  template <class Work>
  void with_client(Work work) {
    sync_wait([](std::string address, Work& use) -> Task<void> {
      Client client({.call_timeout = patience});
      AWAIT(connected, client.connect(address));
      REQUIRE(connected.has_value());
      auto using_it = use(client);
      co_await std::move(using_it);
    }(server.address(), work));
  }

  Server server;
  RetryPolicy policy;
};

TEST_F(Retries, ACallThatWasNotExecutedIsMadeAgain) {
  with_client([&](Client& client) -> Task<void> {
    Retrying retrying(client, policy);
    const std::string codes = "oo";
    AWAIT(result, retrying.call<flaky>(codes));
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
    runs.store(0);
    const std::string many = "ooooo";
    AWAIT(failed, retrying.call<flaky>(many));
    EXPECT_TRUE(is_error(failed, ErrorCode::overloaded, "(attempt 3)"));
    EXPECT_EQ(runs.load(), 3);
  });
}

TEST_F(Retries, OtherErrorsAreFinal) {
  with_client([&](Client& client) -> Task<void> {
    policy.application_codes = {7};
    Retrying retrying(client, policy);
    for (const char* code : {"i", "m", "u", "Z"}) {
      runs.store(0);
      const std::string codes = code;
      AWAIT(failed, retrying.call<flaky>(codes));
      EXPECT_FALSE(failed);
      EXPECT_EQ(runs.load(), 1) << code;
    }
  });
}

TEST_F(Retries, AnIdempotentCallMayBeExecutedTwice) {
  with_client([&](Client& client) -> Task<void> {
    policy.application_codes = {7};
    Retrying retrying(client, policy);
    const CallOptions idempotent{.idempotent = true};
    const std::string codes = "uZ";
    AWAIT(result, retrying.call<flaky>(idempotent, codes));
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
    // The last attempt was not executed, but an earlier one may have been.
    runs.store(0);
    const std::string mixed = "uoo";
    AWAIT(failed, retrying.call<flaky>(idempotent, mixed));
    EXPECT_TRUE(is_error(failed, ErrorCode::outcome_unknown, "earlier attempt may have been executed"));
  });
}

TEST_F(Retries, TheBudgetEndsThem) {
  with_client([&](Client& client) -> Task<void> {
    const auto budget = std::make_shared<RetryBudget>(4, 0.5);
    policy.attempts_max = 10;
    Retrying retrying(client, policy, budget);
    const std::string codes = "oooooooooo";
    AWAIT(failed, retrying.call<flaky>(codes));
    EXPECT_FALSE(failed);
    EXPECT_EQ(runs.load(), 2) << "two of four tokens are left after two failures";
    EXPECT_EQ(budget->tokens(), 2);
    runs.store(0);
    const std::string none;
    AWAIT(good, retrying.call<flaky>(none));
    EXPECT_TRUE(good);
    EXPECT_EQ(budget->tokens(), 2.5);
    runs.store(0);
    AWAIT(once, retrying.call<flaky>(codes));
    EXPECT_FALSE(once);
    EXPECT_EQ(runs.load(), 1);
  });
  EXPECT_THROW(RetryBudget(0), std::invalid_argument);
  EXPECT_THROW(RetryBudget(1001), std::invalid_argument);
}

TEST_F(Retries, ThereIsNoRetryBehindTheDeadline) {
  with_client([&](Client& client) -> Task<void> {
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);
    Retrying retrying(client, policy);
    const CallOptions options{.timeout = patience};
    const std::string codes = "oo";
    AWAIT(failed, retrying.call<flaky>(options, codes));
    EXPECT_TRUE(is_error(failed, ErrorCode::overloaded, "overloaded"));
    EXPECT_EQ(runs.load(), 1);
  });
}

TEST_F(Retries, AStopEndsThePause) {
  with_client([&](Client& client) -> Task<void> {
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);
    Retrying retrying(client, policy);
    std::stop_source stop;
    CallOptions options;
    options.timeout = forever;
    options.token = stop.get_token();
    bool ended = false;
    Scope scope;
    scope.spawn([](Retrying<Client>& used, CallOptions with, bool& end) -> Task<void> {
      const std::string codes = "oo";
      AWAIT(failed, used.call<flaky>(with, codes));
      EXPECT_TRUE(is_error(failed, ErrorCode::cancelled, "before attempt 2"));
      end = true;
    }(retrying, options, ended));
    // The pause begins when the failure has been counted.
    AWAIT(failed_once, eventually(*Loop::current(), [&] { return retrying.budget().tokens() < 100; }));
    EXPECT_TRUE(failed_once);
    stop.request_stop();
    AWAIT(over, eventually(*Loop::current(), [&] { return ended; }));
    EXPECT_TRUE(over);
  });
}

TEST_F(Retries, TheApplicationConnectsAgainBeforeARetry) {
  with_client([&](Client& client) -> Task<void> {
    client.close();
    int prepared = 0;
    policy.before_retry = [&]() -> Task<void> {
      ++prepared;
      AWAIT(connected, client.connect(server.address()));
      EXPECT_TRUE(connected) << error_of(connected);
    };
    Retrying retrying(client, policy);
    const std::string none;
    AWAIT(result, retrying.call<flaky>(none));
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(prepared, 1);
  });
}

TEST_F(Retries, APoolMakesTheAttempts) {
  sync_wait([](std::string address, RetryPolicy with) -> Task<void> {
    auto pool = ClientPool::create(*Loop::current(), address);
    Retrying retrying(*pool, with);
    const std::string codes = "oo";
    AWAIT(result, retrying.call<flaky>(codes));
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
  }(server.address(), policy));
}

}  // namespace retried
}  // namespace hawser
