// Deadlines and cancellation reach the handler: its token is stopped when nobody waits for the reply any more.
#include <hawser/hawser.h>
#include <hawser/quorum.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <vector>

using namespace std::chrono_literals;

std::atomic<int> withdrawn = 0;

// [handler]
hawser::Task<hawser::Result<std::string>> think(hawser::Context& context, int milliseconds) {
  hawser::Result<void> slept = co_await context.loop().sleep(milliseconds * 1ms, context.token());
  if (!slept) {
    ++withdrawn;
    co_return std::unexpected(slept.error());
  }
  co_return "42";
}
// [/handler]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (!co_await client.connect(address)) co_return 1;

  hawser::Result<std::string> answer = co_await client.call<think>(1);
  std::printf("in time: %s\n", answer ? answer->c_str() : answer.error().describe().c_str());

  // [timeout]
  hawser::CallOptions hurry{.timeout = 5ms};
  hawser::Result<std::string> late = co_await client.call<think>(hurry, 60'000);
  // [/timeout]
  std::printf("too late: %s\n", late ? late->c_str() : late.error().describe().c_str());

  // [race]
  // The first answer wins; when_any() asks the slower one to stop, and waits until it has.
  std::stop_source others;
  auto ask = [](hawser::Client& with, std::stop_token token, int ms) -> hawser::Task<hawser::Result<std::string>> {
    hawser::CallOptions options{.token = token};
    co_return co_await with.call<think>(options, ms);
  };
  auto first =
      co_await hawser::when_any(others, ask(client, others.get_token(), 60'000), ask(client, others.get_token(), 1));
  // [/race]
  std::printf("the first was number %zu\n", first.index + 1);

  // [quorum]
  // Two of three answers suffice, such as those of replicas. The third call is cancelled.
  std::stop_source rest;
  std::vector<hawser::Task<hawser::Result<std::string>>> asked;
  for (int ms : {1, 60'000, 2}) asked.push_back(ask(client, rest.get_token(), ms));
  const auto quorum = co_await hawser::when_quorum({.successes = 2}, rest, std::move(asked));
  // [/quorum]
  std::printf("%zu of 3 have answered\n", quorum.successes());

  // Waits until the server has noticed the cancellations.
  auto& loop = *hawser::Loop::current();
  for (int i = 0; i < 1000 && withdrawn < 3; ++i) co_await loop.sleep(1ms);
  std::printf("%d handlers were cancelled\n", withdrawn.load());
  co_return answer == "42" && !late && first.index == 1 && quorum.reached && withdrawn == 3 ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<think>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
