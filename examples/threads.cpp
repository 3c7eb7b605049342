// Calls from ordinary threads: a program without coroutines on the client's side.
#include <hawser/blocking_client.h>
#include <hawser/hawser.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

std::string greet(std::string_view name) { return "hello, " + std::string(name); }

int main() {
  hawser::Server server;
  server.register_handler<greet>();
  if (!server.start()) return 1;

  // [call]
  // All threads share the client. A loop in the background sends, receives and answers pings.
  hawser::BlockingClient client(server.address());

  // Blocks until the reply has arrived.
  const hawser::Result<std::string> reply = client.call<greet>("main");
  std::printf("%s\n", reply ? reply->c_str() : reply.error().describe().c_str());
  // [/call]

  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, name = std::to_string(i)] { right += client.call<greet>(name) == "hello, " + name; });
  }
  for (std::thread& thread : threads) thread.join();

  // [later]
  // Begins a call and waits for its result later.
  auto started = client.start<greet>("later");
  const bool later = started.get() == "hello, later";

  // Calls back on the thread of the loop.
  std::atomic<bool> called{false};
  client.then<greet>(
      [&](hawser::Result<std::string> result) {
        right += result == "hello, callback";
        called.store(true);
        called.notify_one();
      },
      "callback");
  // [/later]
  called.wait(false);

  // [await]
  // A coroutine of any loop awaits the call, and continues on its own loop.
  hawser::sync_wait([](hawser::BlockingClient& on, std::atomic<int>& count) -> hawser::Task<void> {
    const hawser::Result<std::string> result = co_await on.start<greet>("coroutine");
    count += result == "hello, coroutine";
  }(client, right));
  // [/await]
  std::printf("%d of 6 replies are right\n", right.load());
  return reply && later && right == 6 ? 0 : 1;
}
