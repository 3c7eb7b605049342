#include <hawser/hawser.h>

#include <cstdio>

std::string_view echo(std::string_view text) { return text; }

int main(int argc, char** argv) {
  hawser::Server server({.listen = argc > 1 ? argv[1] : "0.0.0.0:9000", .threads = 4});
  server.register_handler<echo>();
  if (auto served = server.run(); !served) {
    std::puts(served.error().describe().c_str());
    return 1;
  }
}
