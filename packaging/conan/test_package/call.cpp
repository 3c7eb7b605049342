// One call from a client to a server in this process.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>
#include <string_view>

std::string_view echo(std::string_view text) { return text; }

hawser::Task<bool> talk(std::string address) {
  hawser::Client client;
  if (hawser::Result<void> connected = co_await client.connect(address); !connected) {
    std::fprintf(stderr, "%s\n", connected.error().describe().c_str());
    co_return false;
  }
  const hawser::Result<std::string> reply = co_await client.call<echo>("packaged");
  co_return reply == "packaged";
}

int main() {
  hawser::Server server;
  server.register_handler<echo>();
  return server.start() && hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
