#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "base/try.h"
#include "cli/doctor/peer.h"
#include "cli/doctor/serve.h"
#include "hawser/client.h"
#include "hawser/scope.h"

namespace hawser::cli::doctor {
namespace {

using Clock = std::chrono::steady_clock;

std::string numeric(const ::sockaddr* address, ::socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return {};
  return text.data();
}

// Connects to one address. Fills `probe`, with the outcome.
void probe_address(const ::addrinfo& to, Duration timeout, TcpProbe& probe) {
  using Outcome = TcpProbe::Outcome;
  const int fd = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    probe.outcome = Outcome::unreachable;
    probe.error = std::strerror(errno);
    return;
  }
  probe.remote = numeric(to.ai_addr, to.ai_addrlen);
  int error = 0;
  if (::connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      ::pollfd wait{fd, POLLOUT, 0};
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
      int ready = 0;
      do {
        ready = ::poll(&wait, 1, static_cast<int>(ms));
      } while (ready < 0 && errno == EINTR);
      ::socklen_t size = sizeof error;
      if (ready <= 0) {
        error = ready == 0 ? ETIMEDOUT : errno;
      } else if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
      }
    }
  }
  probe.outcome = error == 0                                   ? Outcome::connected
                  : error == ECONNREFUSED                      ? Outcome::refused
                  : error == ETIMEDOUT || error == EINPROGRESS ? Outcome::silent
                                                               : Outcome::unreachable;
  if (error != 0) {
    probe.error = std::strerror(error);
  } else {
    ::sockaddr_storage own{};
    ::socklen_t size = sizeof own;
    if (::getsockname(fd, reinterpret_cast<::sockaddr*>(&own), &size) == 0) {
      probe.local = numeric(reinterpret_cast<::sockaddr*>(&own), size);
    }
    int mtu = 0;
    ::socklen_t mtu_size = sizeof mtu;
    const bool v6 = to.ai_family == AF_INET6;
    if (::getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU, &mtu, &mtu_size) == 0) {
      probe.path_mtu_bytes = mtu;
    }
  }
  ::close(fd);
}

ClientOptions client_options(const PeerPlan& plan, const std::string& transport) {
  ClientOptions options;
  options.connect_timeout = plan.connect_timeout;
  options.call_timeout = plan.block_timeout;
  options.message_bytes_max = std::size_t{4} << 20;
  options.transports.enabled.clear();
  if (transport == "shm") options.transports.enable(shm());
  if (transport == "rdma") options.transports.enable(rdma());
  if (transport == "ucx") options.transports.enable(ucx());
  options.transports.required = transport == "tcp" ? "stream" : transport;
  return options;
}

double percentile(std::vector<double>& sorted, double part) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(static_cast<double>(sorted.size()) * part))];
}

// The blocks that several coroutines move in one direction.
struct Blocks {
  Clock::time_point end;
  std::uint64_t bytes = 0;
  double mbyte_per_s = 0;  // When all have ended.
  std::string error;
  bool stalled = false;

  void failed(const Error& reason) {
    if (error.empty()) error = reason.text;
    stalled = stalled || reason.code == ErrorCode::deadline_exceeded;
  }
};

Task<void> send_blocks(Client& client, const std::string& block, Blocks& blocks) {
  while (blocks.error.empty() && Clock::now() < blocks.end) {
    const Result<std::uint32_t> taken = co_await client.call<host::absorb>(std::string_view(block));
    if (!taken) {
      blocks.failed(taken.error());
    } else {
      blocks.bytes += block.size();
    }
  }
}

Task<void> receive_blocks(Client& client, Blocks& blocks) {
  while (blocks.error.empty() && Clock::now() < blocks.end) {
    const Result<std::string> block = co_await client.call<host::produce>(block_bytes);
    if (!block) {
      blocks.failed(block.error());
    } else {
      blocks.bytes += block->size();
    }
  }
}

constexpr int blocks_in_flight = 4;

Task<Blocks> move_blocks(Client& client, Duration duration, bool out) {
  const std::string block(out ? block_bytes : 0, 'x');
  const auto begin = Clock::now();
  Blocks blocks{.end = begin + duration};
  Scope scope;
  for (int i = 0; i < blocks_in_flight; ++i) {
    scope.spawn(out ? send_blocks(client, block, blocks) : receive_blocks(client, blocks));
  }
  co_await scope.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (seconds > 0) blocks.mbyte_per_s = static_cast<double>(blocks.bytes) / seconds / 1e6;
  co_return blocks;
}

Task<Traffic> measure(const PeerPlan& plan, std::string address, std::string transport) {
  Traffic traffic;
  traffic.transport = transport;
  const ClientOptions options = client_options(plan, transport);
  Client client(options);
  if (const Result<void> connected = co_await client.connect(address); !connected) {
    traffic.refusal = connected.error().text;
    co_return traffic;
  }
  std::vector<double> pings;
  for (const auto end = Clock::now() + plan.pings; pings.size() < plan.pings_max && Clock::now() < end;) {
    const Result<Duration> time = co_await client.ping();
    if (!time) {
      traffic.error = time.error().text;
      co_return traffic;
    }
    pings.push_back(std::chrono::duration<double, std::micro>(*time).count());
  }
  std::sort(pings.begin(), pings.end());
  traffic.pings = static_cast<unsigned>(pings.size());
  if (!pings.empty()) {
    traffic.ping_us_p50 = percentile(pings, 0.5);
    traffic.ping_us_p99 = percentile(pings, 0.99);
  }
  for (const bool out : {true, false}) {
    const Blocks blocks = co_await move_blocks(client, plan.blocks, out);
    (out ? traffic.sent_mbyte_per_s : traffic.received_mbyte_per_s) = blocks.mbyte_per_s;
    traffic.blocks_stalled = traffic.blocks_stalled || blocks.stalled;
    if (!blocks.error.empty()) {
      traffic.error = blocks.error;
      break;
    }
  }
  client.close();
  co_return traffic;
}

Task<Result<HostFacts>> facts_of(const PeerPlan& plan, std::string address) {
  const ClientOptions options = client_options(plan, "tcp");
  Client client(options);
  CO_TRY(co_await client.connect(address));
  CO_TRY(HostFacts&& facts, co_await client.call<host::facts>());
  client.close();
  co_return checked_host(std::move(facts));
}

Task<void> read(const PeerPlan& plan, PeerFacts& facts) {
  const SystemFiles files;
  const auto verbs = transport::rdma::system_verbs();
  facts.here = read_host(files, *verbs);
  Result<HostFacts> there = co_await facts_of(plan, facts.address);
  if (!there) {
    facts.error = there.error().text;
    co_return;
  }
  facts.there = std::move(*there);
  for (const char* const transport : {"tcp", "shm", "ucx", "rdma"}) {
    facts.traffic.push_back(co_await measure(plan, facts.address, transport));
  }
  facts.here_after = read_host(files, *verbs);
  Result<HostFacts> after = co_await facts_of(plan, facts.address);
  facts.there_after = after ? std::move(*after) : facts.there;
}

}  // namespace

Result<PeerPlan> peer_plan(std::string_view address) {
  PeerPlan plan;
  std::string_view port = default_port;
  std::string_view host = address;
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    const std::string_view rest = close == std::string_view::npos ? "x" : host.substr(close + 1);
    if (rest.starts_with(':')) {
      port = rest.substr(1);
    } else if (!rest.empty()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("'{}' is not a host: write [ADDRESS] or [ADDRESS]:PORT", address));
    }
    host = host.substr(1, close - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    port = host.substr(host.find(':') + 1);
    host = host.substr(0, host.find(':'));
  }
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (host.empty() || error != std::errc() || end != port.data() + port.size() || number == 0 || number > 65'535) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("'{}' is not a host with a port from 1 to 65535: write HOST, HOST:PORT or [IPv6]:PORT", address));
  }
  plan.host = host;
  plan.port = port;
  return plan;
}

TcpProbe probe_tcp(const PeerPlan& plan) {
  TcpProbe probe;
  ::addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  ::addrinfo* list = nullptr;
  if (const int status = ::getaddrinfo(plan.host.c_str(), plan.port.c_str(), &hints, &list); status != 0) {
    probe.outcome = TcpProbe::Outcome::not_resolved;
    probe.error = ::gai_strerror(status);
    return probe;
  }
  const auto release = [](::addrinfo* all) { ::freeaddrinfo(all); };
  const std::unique_ptr<::addrinfo, decltype(release)> owner(list, release);
  constexpr int addresses_max = 4;
  int tried = 0;
  for (const ::addrinfo* one = list; one != nullptr && tried < addresses_max; one = one->ai_next, ++tried) {
    probe_address(*one, plan.connect_timeout, probe);
    if (probe.outcome == TcpProbe::Outcome::connected) break;
  }
  return probe;
}

PeerFacts read_peer(const PeerPlan& plan) {
  PeerFacts facts;
  facts.address =
      plan.host.find(':') == std::string::npos ? plan.host + ":" + plan.port : "[" + plan.host + "]:" + plan.port;
  facts.probe = probe_tcp(plan);
  if (facts.probe.outcome == TcpProbe::Outcome::connected) {
    LoopOptions options;
    options.log = stderr_log(LogLevel::error);
    sync_wait(read(plan, facts), std::move(options));
  }
  return facts;
}

}  // namespace hawser::cli::doctor
