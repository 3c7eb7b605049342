#include "bench/memory/memory_owner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "bench/baseline/baseline_socket.h"
#include "bench/load/processors.h"
#include "bench/load/transport_choice.h"
#include "bench/memory/memory_service.h"
#include "hawser/hawser.h"

namespace hawser::bench {
namespace {

void send_address(int to, const std::string& address) {
  const std::string line = address + "\n";
  static_cast<void>(!write(to, line.data(), line.size()));
}

void wait_for_end(int life) {
  char scrap = 0;
  while (read(life, &scrap, 1) > 0) {
  }
}

// Receives blocks of a fixed size into the region, one after another, and answers each with a byte.
void serve_sockets(int notify, std::size_t region_bytes, bool unix) {
  std::string address;
  const BaselineSocket listener = listen_baseline(address, unix);
  send_address(notify, address);
  BaselineHello hello;
  const BaselineSocket socket = accept_baseline(listener, hello);
  std::vector<std::byte> region(region_bytes);
  const std::size_t block = hello.size_bytes;
  for (std::size_t at = 0;; at = at + 2 * block <= region_bytes ? at + block : 0) {
    for (std::size_t got = 0; got < block;) {
      const ssize_t size = recv(socket.descriptor(), region.data() + at + got, block - got, MSG_DONTWAIT);
      if (size == 0) return;
      if (size > 0) {
        got += static_cast<std::size_t>(size);
      } else {
        pollfd one{socket.descriptor(), POLLIN, 0};
        static_cast<void>(poll(&one, 1, -1));
      }
    }
    const char done = 0;
    if (send(socket.descriptor(), &done, 1, MSG_NOSIGNAL) != 1) return;
  }
}

void serve_library(const RunOptions& options, int notify, int life, std::size_t region_bytes) {
  ServerOptions with;
  with.listen = listen_address(options.transports.front());
  with.transports = server_transports(options.transports.front());
  with.loop = options.loop(options.waits.front());
  Server server(with);
  MemoryService service(server, region_bytes);
  server.register_handler<&MemoryService::region, &MemoryService::refill>(&service);
  server.register_handler<memory_echo>();
  if (const Result<void> started = server.start(); !started) {
    fmt::print(stderr, "hawser-bench: {}\n", started.error().describe());
    return;
  }
  send_address(notify, server.address());
  wait_for_end(life);
}

}  // namespace

MemoryOwner::MemoryOwner(const RunOptions& options, std::size_t region_bytes, bool sockets) {
  std::array<int, 2> address{};
  std::array<int, 2> life{};
  if (::pipe(address.data()) != 0 || ::pipe(life.data()) != 0) return;
  std::fflush(nullptr);
  process_ = fork();
  if (process_ == 0) {
    close(address[0]);
    close(life[1]);
    if (options.server_cpu && *options.server_cpu >= 0) static_cast<void>(pin_to(*options.server_cpu));
    try {
      if (sockets) {
        serve_sockets(address[1], region_bytes, options.transports.front() == "unix");
      } else {
        serve_library(options, address[1], life[0], region_bytes);
      }
    } catch (const std::exception& error) {
      fmt::print(stderr, "hawser-bench: {}\n", error.what());
    }
    std::fflush(nullptr);
    _exit(0);
  }
  close(address[1]);
  close(life[0]);
  life_ = life[1];
  for (char one = 0; read(address[0], &one, 1) == 1 && one != '\n';) address_ += one;
  close(address[0]);
}

MemoryOwner::~MemoryOwner() {
  if (life_ >= 0) close(life_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

}  // namespace hawser::bench
