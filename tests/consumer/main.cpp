// A project outside the tree that has only the installed package: one complete call, over a transport of its own.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

#include "local_transport.h"

std::string_view echo(std::string_view text) { return text; }

hawser::Task<bool> talk(std::string address) {
  hawser::Client client({.transports = {.enabled = {local_transport::local()}}});
  if (hawser::Result<void> connected = co_await client.connect(address); !connected) {
    std::fprintf(stderr, "%s\n", connected.error().describe().c_str());
    co_return false;
  }
  const hawser::Result<std::string> reply = co_await client.call<echo>("installed");
  co_return reply == "installed" && client.transport() == "local";
}

int main() {
  hawser::Server server;
  server.enable(local_transport::local());
  server.register_handler<echo>();
  return server.start() && hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
