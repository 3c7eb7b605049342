// Chapter 9 of the guide: transports are enabled by one line and negotiated by the connection.
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

std::string echo(std::string_view text) { return std::string(text); }

hawser::Task<int> talk(std::string address) {
  // [enable-client]
  hawser::Client client;
  client.enable_rdma();
  // [/enable-client]
  if (!co_await client.connect(address)) co_return 1;
  hawser::Result<std::string> reply = co_await client.call<echo>("hello");
  // [reasons]
  std::printf("connected by %s\n", std::string(client.transport()).c_str());
  for (const hawser::TransportFallback& fallback : client.fallback_reasons()) {
    std::printf("%s is not used: %s\n", fallback.transport.c_str(), fallback.reason.c_str());
  }
  // [/reasons]
  co_return reply == "hello" ? 0 : 1;
}

int main() {
  // [enable-server]
  hawser::Server server({.listen = "127.0.0.1:0"});
  server.enable_rdma();
  // [/enable-server]
  server.register_handler<echo>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
