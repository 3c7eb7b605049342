#include "bench/load/transport_choice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hawser::bench {
namespace {

constexpr std::string_view names[] = {"tcp", "unix", "tls", "shm", "ucx", "rdma", "auto"};

bool is_stream(std::string_view name) noexcept { return name == "tcp" || name == "unix" || name == "tls"; }

}  // namespace

std::span<const std::string_view> transport_names() noexcept { return names; }

bool is_transport(std::string_view name) noexcept { return std::ranges::find(names, name) != std::end(names); }

TransportOptions server_transports(std::string_view name) {
  TransportOptions options{.enabled = {}};
  const bool all = name == "auto";
  if (all || name == "shm") options.enable(shm());
  if (all || name == "rdma") options.enable(rdma());
  if (all || name == "ucx") options.enable(ucx());
  return options;
}

TransportOptions client_transports(std::string_view name) {
  TransportOptions options = server_transports(name);
  if (name != "auto") options.required = is_stream(name) ? "stream" : std::string(name);
  return options;
}

std::string listen_address(std::string_view name) {
  if (name != "unix") return "127.0.0.1:0";
  const char* const folder = std::getenv("TMPDIR");
  return fmt::format("unix:{}/hawser-bench-{}.socket", folder == nullptr ? "/tmp" : folder, getpid());
}

}  // namespace hawser::bench
