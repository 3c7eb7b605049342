// A project outside the tree that has nothing but the installed package: one call from end to end.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

std::string_view echo(std::string_view text) { return text; }

hawser::Task<bool> talk(std::string address) {
  hawser::Client client;
  auto connecting = client.connect(address);
  if (hawser::Result<void> connected = co_await std::move(connecting); !connected) {
    std::fprintf(stderr, "%s\n", connected.error().describe().c_str());
    co_return false;
  }
  auto call = client.call<echo>("installed");
  const hawser::Result<std::string> reply = co_await std::move(call);
  co_return reply == "installed";
}

int main() {
  hawser::Server server;
  server.register_handler<echo>();
  return server.start() && hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
