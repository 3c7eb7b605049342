// A coroutine that speaks a protocol of another system over a socket of its own, on the loop of Hawser's clients and
// servers: it connects, reads a greeting, sends a name and reads the answer. docs/protocols/custom.md explains it.

#include "hawser/socket_stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>

#include "hawser/hawser.h"

// The other system, which knows nothing of Hawser: it speaks first, as servers of SMTP and NBD do.
void greet(int socket) {
  std::string name(64, '\0');
  bool ok = write(socket, "who?\n", 5) == 5;
  const ssize_t size = ok ? read(socket, name.data(), name.size()) : 0;
  const std::string answer = "hello " + name.substr(0, size > 0 ? static_cast<std::size_t>(size) : 0);
  ok = ok && write(socket, answer.data(), answer.size()) > 0;
  close(socket);
}

hawser::Task<hawser::Result<std::string>> receive_line(hawser::SocketStream& stream) {
  std::string line;
  while (!line.ends_with('\n')) {
    std::array<std::byte, 64> memory;
    const hawser::Result<std::size_t> got = co_await stream.receive(memory);
    if (!got) co_return std::unexpected(got.error());
    if (*got == 0) co_return hawser::fail(hawser::ErrorCode::unavailable, "the peer ended the connection");
    line.append(reinterpret_cast<const char*>(memory.data()), *got);
  }
  co_return line;
}

hawser::Task<hawser::Result<std::string>> ask(hawser::SocketStream& stream, std::string_view name) {
  hawser::Result<std::string> greeting = co_await receive_line(stream);
  if (!greeting) co_return greeting;
  const hawser::Result<void> sent = co_await stream.send(hawser::as_bytes(name));
  if (!sent) co_return std::unexpected(sent.error());
  co_return co_await receive_line(stream);
}

int main() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  std::thread other(greet, ends[1]);
  hawser::Loop loop;
  hawser::Result<hawser::SocketStream> stream = hawser::SocketStream::adopt(loop, ends[0]);
  const hawser::Result<std::string> answer =
      stream ? loop.run(ask(*stream, "world\n")) : hawser::fail(std::move(stream.error()));
  other.join();
  std::printf("%s", answer ? answer->c_str() : answer.error().text.c_str());
  return answer && *answer == "hello world\n" ? 0 : 1;
}
