// The shortest call: a server with one handler, and a client that calls it.
//   echo                     both in one process
//   echo server HOST:PORT    only the server
//   echo client HOST:PORT    only the client
#include <hawser/hawser.h>

#include <cstdio>
#include <string>

std::string_view echo(std::string_view text) { return text; }

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (auto connected = co_await client.connect(address); !connected) {
    std::fprintf(stderr, "%s\n", connected.error().describe().c_str());
    co_return 1;
  }
  hawser::Result<std::string> reply = co_await client.call<echo>("hello, hawser");
  std::printf("%s\n", reply ? reply->c_str() : reply.error().describe().c_str());
  co_return reply == "hello, hawser" ? 0 : 1;
}

int main(int argc, char** argv) {
  const std::string role = argc == 3 ? argv[1] : "";
  if (role == "client") return hawser::sync_wait(talk(argv[2]));

  hawser::Server server({.listen = role == "server" ? argv[2] : "127.0.0.1:0"});
  server.register_handler<echo>();
  if (auto started = role == "server" ? server.run() : server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().describe().c_str());
    return 1;
  }
  return hawser::sync_wait(talk(server.address()));
}
