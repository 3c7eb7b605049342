#include <hawser/hawser.h>

#include <cstdio>

std::string_view echo(std::string_view text);  // Declared as on the server; the client needs no definition.

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  if (auto connected = co_await client.connect(address); !connected) {
    std::puts(connected.error().describe().c_str());
    co_return 1;
  }
  hawser::Result<std::string> reply = co_await client.call<echo>("hello");
  std::puts(reply ? reply->c_str() : reply.error().describe().c_str());
  co_return reply ? 0 : 1;
}

int main(int argc, char** argv) { return hawser::sync_wait(talk(argc > 1 ? argv[1] : "127.0.0.1:9000")); }
