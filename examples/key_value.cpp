// A counter with an owner in the key-value store of hawser-kv. Start the store first:
//   hawser-kv serve --listen 127.0.0.1:6379
//   key_value [ADDRESS]
#include <hawser/hawser.h>
#include <hawser/kv.h>

#include <chrono>
#include <cstdio>
#include <string>

using hawser::Result;
using hawser::kv::KvClient;

hawser::Task<Result<void>> use_store(std::string address) {
  hawser::Client client;
  if (auto connected = co_await client.connect(address); !connected) co_return connected;
  KvClient store(client);  // On the store's machine it reads by shared memory, without a call.

  // The first process that creates the key is the owner, for a minute.
  auto owner = co_await store.compare_and_set("owner", 0, "this process", std::chrono::minutes(1));
  if (!owner) co_return std::unexpected(owner.error());
  std::printf("%s the owner\n", *owner ? "this process is" : "another process is");

  auto visits = co_await store.increment("visits", 1);
  if (!visits) co_return std::unexpected(visits.error());
  std::printf("visit number %lld\n", static_cast<long long>(*visits));

  auto value = co_await store.get("owner");
  if (!value) co_return std::unexpected(value.error());
  std::printf("the owner is %s\n", *value ? (*value)->bytes.c_str() : "nobody");
  co_return Result<void>();
}

int main(int argc, char** argv) {
  const Result<void> used = hawser::sync_wait(use_store(argc > 1 ? argv[1] : "127.0.0.1:6379"));
  if (!used) std::puts(used.error().describe().c_str());
  return used ? 0 : 1;
}
