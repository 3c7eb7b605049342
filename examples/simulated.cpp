// A test that finds a bug by seed: deposit_with_retry() repeats a deposit whose outcome is unknown, although the bank
// may have executed it. See docs/testing.md. The program succeeds if the test finds that bug, and none in the correct
// code.
#include <hawser/testing.h>

#include <cstdio>

using namespace hawser;

// [service]
struct Bank {
  std::int64_t balance = 0;
  std::int64_t deposit(std::int64_t amount) { return balance += amount; }
};

Task<Result<std::int64_t>> deposit_with_retry(Client& client, std::int64_t amount, bool bug) {
  for (;;) {
    const Result<void> connected = co_await client.connect("bank:7000");
    if (!connected) continue;
    Result<std::int64_t> balance = co_await client.call<&Bank::deposit>(amount);
    if (balance || !(balance.error().not_executed() || bug)) co_return balance;
  }
}
// [/service]

// [test]
testing::SeedOutcome test_deposits(bool bug) {
  testing::SeedOptions options{.name = bug ? "bug" : "correct", .count = 200};
  options.simulation.network.reset = 0.2;  // A connection in five breaks.
  return testing::for_each_seed(options, [bug](testing::Simulation& simulation) -> Task<void> {
    Bank bank;
    simulation.serve("bank:7000", [&bank](Server& server) { server.register_handler<&Bank::deposit>(&bank); });
    Client client;
    std::int64_t confirmed = 0;
    std::int64_t unknown = 0;
    for (int i = 0; i < 20; ++i) {
      const Result<std::int64_t> balance = co_await deposit_with_retry(client, 1, bug);
      ++(balance ? confirmed : unknown);
    }
    simulation.expect(bank.balance >= confirmed, "a confirmed deposit was lost");
    simulation.expect(bank.balance <= confirmed + unknown, "a deposit was executed twice");
  });
}
// [/test]

int main() {
  const testing::SeedOutcome bug = test_deposits(true);
  const testing::SeedOutcome correct = test_deposits(false);
  std::printf("the bug: %s; the correct code: %s\n", bug ? "not found" : "found", correct ? "passes" : "fails");
  return !bug && correct ? 0 : 1;
}
