#include "hawser/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// Ends like flaky(), with the number of items that it has read.
Task<Result<int>> flaky_sum(std::string codes, Reader<int> in) {
  if (const Result<int> run = flaky(codes); !run) co_return std::unexpected(run.error());
  int sum = 0;
  for (;;) {
    auto item = co_await in.next();
    if (!item || !*item) co_return sum;
    sum += **item;
  }
}
std::atomic<bool> may_end{false};
// Ignores its token, so that the client's deadline is not in a race with a reply.
Task<void> wait_for_end(Context& context, Writer<int>) {
  while (!may_end.load()) {
    co_await context.loop().sleep(1ms);
  }
}
// Gives the text back, and the attachment.
Result<std::string> flaky_echo(Context& context, std::string codes, std::string text) {
  if (const Result<int> run = flaky(codes); !run) return std::unexpected(run.error());
  context.set_attachment(Buffer::copy_of(as_text(context.attachment())));
  return text;
}

class Retries : public ::testing::Test {
 protected:
  Retries() {
    runs.store(0);
    may_end.store(false);
    server.register_handler<flaky, flaky_sum, flaky_echo, wait_for_end>();
    EXPECT_TRUE(server.start());
    policy.backoff_first = 1ms;
  }
  // Runs `work` with a connected client.
  template <class Work>
  void with_client(Work work) {
    sync_wait([](std::string address, Work& use) -> Task<void> {
      Client client({.call_timeout = patience});
      auto connected = co_await client.connect(address);
      REQUIRE(connected.has_value());
      co_await use(client);
    }(server.address(), work));
  }

  Server server;
  RetryPolicy policy;
};

TEST_F(Retries, ACallThatWasNotExecutedIsMadeAgain) {
  with_client([&](Client& client) -> Task<void> {
    Retrying retrying(client, policy);
    const std::string codes = "oo";
    auto result = co_await retrying.call<flaky>(codes);
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
    runs.store(0);
    const std::string many = "ooooo";
    auto failed = co_await retrying.call<flaky>(many);
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
      auto failed = co_await retrying.call<flaky>(codes);
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
    auto result = co_await retrying.call<flaky>(idempotent, codes);
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
    // The last attempt was not executed, but an earlier one may have been.
    runs.store(0);
    const std::string mixed = "uoo";
    auto failed = co_await retrying.call<flaky>(idempotent, mixed);
    EXPECT_TRUE(is_error(failed, ErrorCode::outcome_unknown, "earlier attempt may have been executed"));
  });
}

TEST_F(Retries, TheBudgetEndsThem) {
  with_client([&](Client& client) -> Task<void> {
    const auto budget = std::make_shared<RetryBudget>(4, 0.5);
    policy.attempts_max = 10;
    Retrying retrying(client, policy, budget);
    const std::string codes = "oooooooooo";
    auto failed = co_await retrying.call<flaky>(codes);
    EXPECT_FALSE(failed);
    EXPECT_EQ(runs.load(), 2) << "two of four tokens are left after two failures";
    EXPECT_EQ(budget->tokens(), 2);
    runs.store(0);
    const std::string none;
    auto good = co_await retrying.call<flaky>(none);
    EXPECT_TRUE(good);
    EXPECT_EQ(budget->tokens(), 2.5);
    runs.store(0);
    auto once = co_await retrying.call<flaky>(codes);
    EXPECT_FALSE(once);
    EXPECT_EQ(runs.load(), 1);
  });
  const auto refusal = [](double tokens_max, double tokens_per_success) -> std::string {
    try {
      const RetryBudget budget(tokens_max, tokens_per_success);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal(1000, 0), "");
  EXPECT_EQ(refusal(0, 0), "hawser: RetryBudget: tokens_max is 0, and must be more than 0 and at most 1000");
  EXPECT_EQ(refusal(1001, 0), "hawser: RetryBudget: tokens_max is 1001, and must be more than 0 and at most 1000");
  EXPECT_EQ(refusal(1, -0.5), "hawser: RetryBudget: tokens_per_success is -0.5, and must be at least 0");
}

TEST_F(Retries, ThereIsNoRetryBehindTheDeadline) {
  with_client([&](Client& client) -> Task<void> {
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);
    Retrying retrying(client, policy);
    const CallOptions options{.timeout = patience};
    const std::string codes = "oo";
    auto failed = co_await retrying.call<flaky>(options, codes);
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
      auto failed = co_await used.call<flaky>(with, codes);
      EXPECT_TRUE(is_error(failed, ErrorCode::cancelled, "before attempt 2"));
      end = true;
    }(retrying, options, ended));
    // The pause begins when the failure has been counted.
    auto failed_once = co_await eventually(*Loop::current(), [&] { return retrying.budget().tokens() < 100; });
    EXPECT_TRUE(failed_once);
    std::thread([&stop] { stop.request_stop(); }).join();
    auto over = co_await eventually(*Loop::current(), [&] { return ended; });
    EXPECT_TRUE(over);
  });
}

TEST_F(Retries, TheApplicationConnectsAgainBeforeARetry) {
  with_client([&](Client& client) -> Task<void> {
    client.close();
    int prepared = 0;
    policy.before_retry = [&]() -> Task<void> {
      ++prepared;
      auto connected = co_await client.connect(server.address());
      EXPECT_TRUE(connected) << error_of(connected);
    };
    Retrying retrying(client, policy);
    const std::string none;
    auto result = co_await retrying.call<flaky>(none);
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(prepared, 1);
  });
}

TEST_F(Retries, AnAttemptFollowsAnExceptionOfBeforeRetry) {
  with_client([&](Client& client) -> Task<void> {
    int prepared = 0;
    policy.before_retry = [&]() -> Task<void> {
      ++prepared;
      throw std::runtime_error("not prepared");
      co_return;
    };
    Retrying retrying(client, policy);
    const std::string codes = "oo";
    auto result = co_await retrying.call<flaky>(codes);
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(prepared, 2);
    EXPECT_EQ(runs.load(), 3);
  });
}

TEST_F(Retries, APoolMakesTheAttempts) {
  sync_wait([](std::string address, RetryPolicy with) -> Task<void> {
    auto pool = ClientPool::create(*Loop::current(), address);
    Retrying retrying(*pool, with);
    const std::string codes = "oo";
    auto result = co_await retrying.call<flaky>(codes);
    EXPECT_TRUE(result) << error_of(result);
    EXPECT_EQ(runs.load(), 3);
  }(server.address(), policy));
}

// ---- Whole replies ----

// Uses `via` through a Retrying.
template <class Via>
Task<void> expect_whole_replies(Via& via, const RetryPolicy& policy) {
  Retrying retrying(via, policy);
  const std::string attachment = text_of(20'000);
  const CallOptions with{.attachment = as_bytes(attachment)};
  const std::string codes = "oo";
  const std::string text = "text";
  runs.store(0);
  auto reply = co_await retrying.template call<flaky_echo>(with, codes, text).reply();
  REQUIRE_OK(reply);
  EXPECT_EQ(**reply, "text");
  EXPECT_EQ(as_text(reply->attachment()), attachment);
  EXPECT_EQ(runs.load(), 3);

  std::vector<std::byte> memory(attachment.size());
  runs.store(0);
  auto placed = co_await retrying.template call<flaky_echo>(with, codes, text).into(memory);
  REQUIRE_OK(placed);
  EXPECT_EQ(**placed, "text");
  EXPECT_EQ(static_cast<const void*>(placed->attachment().data()), memory.data());
  EXPECT_EQ(as_text(memory), attachment);
  EXPECT_EQ(runs.load(), 3);

  runs.store(0);
  const std::string many = "ooooo";
  auto failed = co_await retrying.template call<flaky_echo>(many, text).reply();
  EXPECT_ERROR(failed, overloaded, "(attempt 3)");
  EXPECT_EQ(runs.load(), 3);
  runs.store(0);
  auto final = co_await retrying.template call<flaky_echo>(std::string("i"), std::string("text")).into(memory);
  EXPECT_ERROR(final, internal, "");
  EXPECT_EQ(runs.load(), 1);
  // A call whose whole reply is not wanted after all is the same call.
  auto value = co_await retrying.template call<flaky_echo>(std::string(), text);
  EXPECT_EQ(value, "text");
}

TEST_F(Retries, WholeRepliesOfAClient) {
  with_client([&](Client& client) { return expect_whole_replies(client, policy); });
}

TEST_F(Retries, WholeRepliesOfAPool) {
  sync_wait([](std::string address, const RetryPolicy& with) -> Task<void> {
    auto pool = ClientPool::create(*Loop::current(), address);
    co_await expect_whole_replies(*pool, with);
  }(server.address(), policy));
}

// ---- Streams ----

// Sends 1 to 4 over a stream and expects their sum.
template <class Via>
Task<void> expect_stream(Retrying<Via>& retrying) {
  const std::string none;
  auto opened = co_await retrying.template open<flaky_sum>(none);
  REQUIRE_OK(opened);
  auto writer = opened->writer();
  for (int i = 1; i <= 4; ++i) {
    auto written = co_await writer.write(i);
    EXPECT_OK(written);
  }
  auto sum = co_await opened->finish();
  EXPECT_EQ(sum, 10);
}

TEST_F(Retries, AnOpeningWithoutAConnectionIsMadeAgain) {
  with_client([&](Client& client) -> Task<void> {
    client.close();
    int prepared = 0;
    policy.before_retry = [&]() -> Task<void> {
      if (++prepared < 2) co_return;
      auto connected = co_await client.connect(server.address());
      EXPECT_OK(connected);
    };
    Retrying retrying(client, policy);
    co_await expect_stream(retrying);
    EXPECT_EQ(prepared, 2);
    EXPECT_EQ(runs.load(), 1);
    EXPECT_LT(retrying.budget().tokens(), 99) << "two failures and one success";

    client.close();
    policy.attempts_max = 2;
    policy.before_retry = {};
    Retrying twice(client, policy);
    const std::string none;
    auto failed = co_await twice.open<flaky_sum>(none);
    EXPECT_ERROR(failed, not_sent, "(attempt 2)");
    EXPECT_EQ(runs.load(), 1);
  });
}

// The pool's connection ends with its server. Nobody listens there until the second attempt, which may still get the
// result of connecting before that.
TEST_F(Retries, AnOpeningOverAPoolIsMadeAgainWhenAnotherServerListens) {
  sync_wait([](std::string address, RetryPolicy with, Server& first) -> Task<void> {
    auto pool = ClientPool::create(*Loop::current(), address, {.backoff_min = 1ms, .connect_attempts_max = 1});
    std::unique_ptr<Server> second;
    with.attempts_max = 10;
    with.before_retry = [&]() -> Task<void> {
      if (second != nullptr) co_return;
      second = std::make_unique<Server>(ServerOptions{.listen = address});
      second->register_handler<flaky_sum>();
      EXPECT_OK(second->start());
      co_return;
    };
    Retrying retrying(*pool, with);
    co_await expect_stream(retrying);
    EXPECT_EQ(second, nullptr);
    EXPECT_EQ(pool->connections(), 1U);

    const auto stop = [&first] { first.stop(Duration::zero()); };
    auto stopped = co_await Loop::current()->offload(stop);
    EXPECT_OK(stopped);
    auto lost = co_await eventually(*Loop::current(), [&] { return pool->connections() == 0; });
    EXPECT_TRUE(lost);
    co_await expect_stream(retrying);
    EXPECT_NE(second, nullptr);
    EXPECT_EQ(pool->connections(), 1U);
    pool.reset();
  }(server.address(), policy, server));
}

// open() has ended when the server refuses the call.
TEST_F(Retries, AnOpenStreamIsNotOpenedAgain) {
  with_client([&](Client& client) -> Task<void> {
    Retrying retrying(client, policy);
    const CallOptions idempotent{.idempotent = true};
    const std::string codes = "oo";
    auto opened = co_await retrying.open<flaky_sum>(idempotent, codes);
    REQUIRE_OK(opened);
    auto finished = co_await opened->finish();
    EXPECT_ERROR(finished, overloaded, "");
    EXPECT_EQ(runs.load(), 1);
  });
}

TEST_F(Retries, DeadlinesAndStopsOfStreams) {
  with_client([&](Client& client) -> Task<void> {
    Retrying retrying(client, policy);
    const CallOptions brief{.timeout = 20ms};
    auto opened = co_await retrying.open<wait_for_end>(brief);
    REQUIRE_OK(opened);
    auto finished = co_await opened->finish();
    EXPECT_ERROR(finished, deadline_exceeded, "");

    std::stop_source stop;
    const CallOptions stoppable{.token = stop.get_token()};
    auto stopped = co_await retrying.open<wait_for_end>(stoppable);
    REQUIRE_OK(stopped);
    stop.request_stop();
    auto ended = co_await stopped->finish();
    EXPECT_ERROR(ended, cancelled, "");

    // No attempt follows behind the deadline, or when the caller has stopped.
    client.close();
    policy.backoff_first = policy.backoff_max = std::chrono::hours(1);
    Retrying slow(client, policy);
    const CallOptions patient{.timeout = patience};
    auto late = co_await slow.open<wait_for_end>(patient);
    EXPECT_ERROR(late, not_sent, "");
    auto never = co_await slow.open<wait_for_end>(stoppable);
    EXPECT_ERROR(never, cancelled, "before attempt 2");
  });
  may_end.store(true);
}

}  // namespace retried
}  // namespace hawser
