// The commands get and set.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/client_given.h"
#include "kv/command.h"

namespace hawser::kv {
namespace {

// Exit status of `get` if the key does not exist.
constexpr int missing_status = 3;

struct AccessOptions {
  ClientGiven server;
  std::string key;
  std::string value;
  double lifetime_seconds = 0;
};

int report(const Error& error) {
  fmt::print(stderr, "hawser-kv: {}\n", error.text);
  return 1;
}

// Both return the exit status.
Task<int> get(KvClient& client, const AccessOptions& options) {
  const Result<std::optional<Value>> value = co_await client.get(options.key);
  if (!value) co_return report(value.error());
  if (!*value) co_return missing_status;
  std::fwrite((*value)->bytes.data(), 1, (*value)->bytes.size(), stdout);
  std::fputc('\n', stdout);
  co_return 0;
}

Task<int> set(KvClient& client, const AccessOptions& options) {
  std::optional<Duration> lifetime;
  if (options.lifetime_seconds != 0) {
    lifetime = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.lifetime_seconds));
  }
  const Result<std::uint64_t> version = co_await client.set(options.key, options.value, lifetime);
  if (!version) co_return report(version.error());
  co_return 0;
}

// Runs get() or set() with a client of the server that the options name.
Task<int> with_client(const AccessOptions& options, Task<int> (*work)(KvClient&, const AccessOptions&)) {
  const Result<ClientOptions> client_options = hawser::kv::client_options(options.server);
  if (!client_options) co_return report(client_options.error());
  Client link(*client_options);
  const Result<void> connected = co_await link.connect(options.server.connect);
  if (!connected) co_return report(connected.error());
  KvClient client(link);
  co_return co_await work(client, options);
}

std::shared_ptr<AccessOptions> add_options(CLI::App& command) {
  auto options = std::make_shared<AccessOptions>();
  add_client_options(command, options->server);
  command.add_option("key", options->key, "The key")->required();
  return options;
}

}  // namespace

Run add_get(CLI::App& command) {
  auto options = add_options(command);
  return [options] { return sync_wait(with_client(*options, get)); };
}

Run add_set(CLI::App& command) {
  auto options = add_options(command);
  command.add_option("value", options->value, "The value")->required();
  command.add_option("--lifetime", options->lifetime_seconds, "Seconds until the entry expires. Default: never")
      ->check(CLI::Range(0.0, 1e9));
  return [options] { return sync_wait(with_client(*options, set)); };
}

}  // namespace hawser::kv
