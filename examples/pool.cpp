// A pool of connections: many requests at once over few connections, sent now and awaited later.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>
#include <vector>

std::string echo(std::string_view text) { return std::string(text); }
hawser::Task<int> count(int end, hawser::Writer<int> out) {
  for (int i = 0; i < end; ++i) {
    if (!co_await out.write(i)) co_return -1;
  }
  co_return end;
}

hawser::Task<int> talk(std::string address) {
  // [create]
  hawser::PoolOptions pool_options;
  pool_options.connections_max = 2;
  pool_options.calls_per_connection = 8;                          // With this many on each, one more is opened.
  pool_options.client.call_timeout = std::chrono::seconds(10);    // ClientOptions of every connection.
  pool_options.client.connect_timeout = std::chrono::seconds(1);  // For one attempt.
  pool_options.idle_timeout = std::chrono::seconds(30);           // Unused connections are closed.
  auto pool = hawser::ClientPool::create(address, pool_options);
  // [/create]

  // One request: sent when the first await ends, answered when the second does.
  auto sent = co_await pool->send_request([](hawser::Client& client) { return client.send_request<echo>("hello"); });
  if (!sent) {
    std::fprintf(stderr, "%s\n", sent.error().describe().c_str());
    co_return 1;
  }
  hawser::Result<std::string> reply = co_await std::move(*sent);
  std::printf("%s\n", reply ? reply->c_str() : reply.error().describe().c_str());

  // [many]
  // Many calls at once.
  std::vector<hawser::Task<hawser::Result<std::string>>> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(pool->call<echo>("call " + std::to_string(i)));
  std::vector<hawser::Result<std::string>> replies = co_await hawser::when_all(std::move(calls));
  // [/many]

  // [options]
  // Options of one call come first. Options of every connection are in PoolOptions::client.
  const hawser::CallOptions options{.timeout = std::chrono::seconds(2), .idempotent = true};
  const hawser::Result<std::string> limited = co_await pool->call<echo>(options, "within two seconds");
  // [/options]

  // [whole]
  // The attachment and the metadata of a reply, and a stream.
  const auto whole = co_await pool->call<echo>("with attachment").reply();  // Or into(memory).
  auto counting = co_await pool->open<count>(3);
  if (!whole || !counting) co_return 1;
  const hawser::Result<int> counted = co_await counting->finish();
  // [/whole]
  std::size_t right = limited == "within two seconds" && **whole == "with attachment" && counted == 3 ? 0 : 1'000;
  for (std::size_t i = 0; i < replies.size(); ++i) right += replies[i] == "call " + std::to_string(i);
  std::printf("%zu of %zu replies over %zu connections\n", right, replies.size(), pool->connections());
  co_return reply == "hello" && right == replies.size() && pool->connections() <= 2 ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<echo, count>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
