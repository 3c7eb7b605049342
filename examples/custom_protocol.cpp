// A protocol of your own on the port of a server, beside the others: lines such as "add apples 3", each answered by one
// line. docs/protocols/custom.md explains it.

#include "hawser/custom_protocol.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "hawser/hawser.h"

// The service: handlers as usual. Clients of every protocol of the server call them.
std::int64_t add(std::string_view name, std::int64_t count) {
  static std::map<std::string, std::int64_t, std::less<>> stock;  // One loop: no lock.
  return stock[std::string(name)] += count;
}

// The protocol. Interceptors, limits and counters of the server hold for the call.
hawser::Task<void> serve(hawser::ProtocolConnection& connection) {
  constexpr std::size_t line_bytes_max = 256;
  for (;;) {
    const hawser::Result<std::string> line = co_await connection.receive_until("\n", line_bytes_max);
    if (!line) co_return;  // The client has gone, or the server stops.
    const std::string_view text = *line;
    const std::size_t space = text.rfind(' ');
    std::int64_t count = 0;
    const bool parsed =
        text.starts_with("add ") && space > 4 &&
        std::from_chars(text.data() + space + 1, text.data() + text.size(), count).ptr == text.data() + text.size();
    std::string answer = "error: add NAME NUMBER\n";
    if (parsed) {
      const hawser::Result<std::int64_t> sum = co_await connection.call<add>(text.substr(4, space - 4), count);
      answer = sum ? std::to_string(*sum) + "\n" : "error: " + sum.error().text + "\n";
    }
    if (!co_await connection.send(answer)) co_return;
  }
}

// A client that knows nothing of Hawser, as `nc` is.
std::string ask(const std::string& address, std::string_view lines) {
  const std::size_t colon = address.rfind(':');
  addrinfo* to = nullptr;
  if (getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), nullptr, &to) != 0) return {};
  const int fd = socket(to->ai_family, SOCK_STREAM, 0);
  std::string answers;
  if (connect(fd, to->ai_addr, to->ai_addrlen) == 0 && write(fd, lines.data(), lines.size()) > 0) {
    shutdown(fd, SHUT_WR);
    char bytes[256];
    for (ssize_t got = 0; (got = read(fd, bytes, sizeof bytes)) > 0;)
      answers.append(bytes, static_cast<std::size_t>(got));
  }
  close(fd);
  freeaddrinfo(to);
  return answers;
}

int main() {
  hawser::Server server;
  server.register_handler<add>();
  server.enable(
      hawser::CustomProtocol{.name = "stock", .match = hawser::CustomProtocol::begins_with("add "), .serve = serve});
  if (const hawser::Result<void> started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().text.c_str());
    return 1;
  }
  const std::string answers = ask(server.address(), "add apples 3\nadd pears 1\nadd apples 4\nadd nothing\n");
  std::printf("%s", answers.c_str());
  return answers == "3\n1\n7\nerror: add NAME NUMBER\n" ? 0 : 1;
}
