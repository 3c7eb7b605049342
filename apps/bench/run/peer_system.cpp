#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "bench/load/client_role.h"
#include "bench/load/events.h"
#include "bench/run/system.h"

namespace hawser::bench {
namespace {

// Returns the path of the peer's program, which the build puts beside this program.
std::string program_of(const std::string& peer) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  std::string folder(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  folder.erase(folder.rfind('/') + 1);
  return folder + "peers/hawser-peer-" + peer;
}

// Replaces this process by the peer's program, which writes its events to standard output. Returns only if that fails.
int become(const std::string& peer, std::vector<std::string> arguments, int descriptor) {
  const std::string program = program_of(peer);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> pointers;
  for (std::string& one : arguments) pointers.push_back(one.data());
  pointers.push_back(nullptr);
  dup2(descriptor, STDOUT_FILENO);
  execv(program.c_str(), pointers.data());
  EventWriter(descriptor).write(Failed{fmt::format("cannot start {}: {}", program, std::strerror(errno))});
  return 1;
}

}  // namespace

System peer_system(const std::string& peer) {
  return {.name = peer,
          .serve =
              [peer](const RunOptions& options, const Cell& cell, int descriptor) {
                std::vector<std::string> arguments = {"server"};
                if (cell.transport == "tls") {
                  arguments.insert(arguments.end(),
                                   {"--tls-cert", options.tls_files.certificate, "--tls-key", options.tls_files.key});
                }
                return become(peer, std::move(arguments), descriptor);
              },
          .measure =
              [peer](const RunOptions& options, const std::string& address, pid_t server,
                     const std::vector<Cell>& cells, int descriptor) {
                std::vector<std::string> arguments = {"client",
                                                      "--connect",
                                                      address,
                                                      "--server-process",
                                                      fmt::format("{}", server),
                                                      "--seconds",
                                                      fmt::format("{}", options.seconds),
                                                      "--reply",
                                                      options.reply == ReplyKind::echo ? "echo" : "ack",
                                                      "--bytes-in-flight",
                                                      fmt::format("{}", options.bytes_in_flight_max),
                                                      "--wait",
                                                      std::string(to_string(cells.front().wait))};
                if (cells.front().transport == "tls") {
                  arguments.insert(arguments.end(), {"--tls-ca", options.tls_files.ca});
                }
                for (const Cell& cell : cells) {
                  arguments.push_back("--cell");
                  arguments.push_back(fmt::format("{}:{}x{}", to_string(cell.mode), cell.size_bytes, cell.concurrency));
                }
                return become(peer, arguments, descriptor);
              }};
}

System grpc_client_system() {
  return {.name = "grpc-client", .serve = hawser_system().serve, .measure = peer_system("grpc").measure};
}

System grpc_server_system() {
  return {.name = "grpc-server",
          .serve = peer_system("grpc").serve,
          .measure = [](const RunOptions& options, const std::string& address, pid_t server,
                        const std::vector<Cell>& cells, int descriptor) {
            return play_client(options, address, cells, EventWriter(descriptor), server) ? 0 : 1;
          }};
}

std::string missing_grpc_half(const RunOptions& options) {
  if (options.protocol != BenchProtocol::grpc) {
    return "grpc-client and grpc-server compare calls of gRPC only: give --protocol grpc";
  }
  if (options.reply != ReplyKind::echo) return "grpc-client and grpc-server compare echoes only: omit --reply ack";
  return missing_peer("grpc", options);
}

std::string missing_peer(const std::string& peer, const RunOptions& options) {
  if (peer != "grpc" && std::ranges::find(options.transports, "tls") != options.transports.end()) {
    return fmt::format("{} is not measured within TLS: give --transport tcp, or --peers baseline,grpc", peer);
  }
  if (access(program_of(peer).c_str(), X_OK) == 0) return {};
  const std::string packages =
      peer == "grpc" ? "libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev" : "libcapnp-dev capnproto";
  return fmt::format("{}'s program is not built: install {} and build hawser-peer-{}, or make compare", peer, packages,
                     peer);
}

}  // namespace hawser::bench
