// Calls to a name. Three servers stand behind it; one of them is stopped, and no call fails.
#include <hawser/cluster_client.h>
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

int square(int x) { return x * x; }

hawser::Task<int> talk(std::string name, hawser::Server& first) {
  // [create]
  auto created = hawser::ClusterClient::create(name, {.balancing = {.kind = hawser::Balancing::p2c}});
  if (!created) {
    std::fprintf(stderr, "%s\n", created.error().text.c_str());
    co_return 1;
  }
  hawser::ClusterClient& cluster = **created;
  // [/create]

  int right = 0;
  for (int i = 0; i < 100; ++i) {
    if (i == 50) first.stop();
    const hawser::CallOptions options{.timeout = std::chrono::seconds(5), .idempotent = true};
    right += co_await cluster.call<square>(options, i) == i * i ? 1 : 0;
  }
  for (const hawser::EndpointState& one : cluster.endpoints()) {
    std::printf("%s is %.*s\n", one.endpoint.address.c_str(), static_cast<int>(one.reach.size()), one.reach.data());
  }
  std::printf("%d of 100 calls succeeded\n", right);
  co_return right == 100 ? 0 : 1;
}

int main() {
  hawser::Server servers[3];
  std::string name = "list:";
  for (hawser::Server& server : servers) {
    server.register_handler<square>();
    if (!server.start()) return 1;
    name += server.address() + ",";
  }
  return hawser::sync_wait(talk(name, servers[0]));
}
