#include "transport/tcp/connect_race.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "hawser/scope.h"

namespace hawser::transport {
namespace {

struct Race {
  std::optional<Descriptor> winner;
  std::optional<Error> failure;  // Error of the attempt that failed last.
  std::size_t running = 0;
  Time next_start{};
};

Task<void> run(Race& race, AddressList& addresses, Task<Result<Descriptor>> attempt) {
  Result<Descriptor> outcome = fail(Error::of_connection(ErrorCode::unavailable, "not tried"));
  try {
    outcome = co_await std::move(attempt);
  } catch (const std::exception& error) {
    // There is no memory, or the poller accepts no more descriptors. The loop continues.
    outcome = fail(Error::of_connection(ErrorCode::unavailable, std::string("cannot connect: ") + error.what()));
  }
  --race.running;
  if (outcome) {
    if (!race.winner) race.winner = std::move(*outcome);
  } else {
    race.failure = std::move(outcome.error());
    race.next_start = Time{};
  }
  addresses.changed.notify_all();
}

}  // namespace

Task<Result<Descriptor>> race_to_connect(Loop& loop, AddressList& addresses, ConnectAttempt attempt, Time deadline) {
  Race race;
  MemberTimer<&exec::Condition::notify_all> alarm(addresses.changed);
  Scope attempts;
  while (!race.winner) {
    const Time now = loop.now();
    if (now >= deadline) {
      co_return fail(race.failure.value_or(
          Error::of_connection(ErrorCode::unavailable, race.running != 0 ? "no address answered in time"
                                                                         : "the name was not resolved in time")));
    }
    if (!addresses.empty() && (race.running == 0 || now >= race.next_start)) {
      ++race.running;
      race.next_start = loop.after(connection_attempt_delay);
      auto next = attempt(*addresses.next());
      attempts.spawn(run(race, addresses, std::move(next)));
      continue;
    }
    if (race.running == 0 && addresses.empty() && addresses.completed()) {
      if (race.failure) co_return fail(std::move(*race.failure));
      co_return fail(
          addresses.error().value_or(Error::of_connection(ErrorCode::unavailable, "the host has no address")));
    }
    alarm.start(loop, addresses.empty() ? deadline : std::min(deadline, race.next_start));
    co_await addresses.changed.wait();
  }
  co_return std::move(*race.winner);
}

}  // namespace hawser::transport
