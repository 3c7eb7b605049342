#include "bench/load/client_role.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bench/load/handlers.h"
#include "bench/load/load.h"
#include "bench/load/meter.h"
#include "bench/load/protocols.h"
#include "bench/load/tls.h"
#include "bench/load/transport_choice.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/rdma.h"
#include "hawser/scope.h"
#include "hawser/transport/poller.h"

namespace hawser::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned connecting_at_once = 64;
// Period of checking whether all callers have ended.
constexpr double step_s = 0.02;
// Bytes of a waiting request beside its payload.
constexpr std::size_t request_overhead_bytes_max = 256;

Duration duration_of(double seconds) { return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)); }
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

ClientOptions client_options(const RunOptions& options, const Cell& cell) {
  ClientOptions client;
  client.connect_timeout = duration_of(connect_s_max);
  client.call_timeout = duration_of(options.call_timeout_s);
  client.ping_interval = duration_of(options.call_timeout_s / 2);
  client.calls_in_flight_max = cell.concurrency;
  client.transports = client_transports(cell.transport);
  client.security = client_security(options, cell.transport);
  client.message_bytes_max = size_bytes_max + 4096;
  // Waiting payloads are not copied: all requests refer to windows of one buffer.
  client.send_backlog_bytes_max = cell.concurrency * (cell.size_bytes + request_overhead_bytes_max) + (1 << 20);
  return client;
}

// One connection of a cell, over the protocol of the options.
class CellClient {
 public:
  CellClient(Loop& loop, const RunOptions& options, const Cell& cell) {
    std::optional<ClientOptions> with = client_options(options, cell);
    switch (options.protocol) {
      case BenchProtocol::native: break;
      case BenchProtocol::baidu_std: with = baidu_std_options(*with); break;
      case BenchProtocol::grpc: with = grpc_options(*with); break;
      case BenchProtocol::http: http_ = make_http_caller(loop, *with); return;
    }
    if (with) client_.emplace(loop, std::move(*with));
  }
  Task<Result<void>> connect(std::string address) {
    if (http_ != nullptr) return http_->connect(std::move(address));
    if (client_) return client_->connect(std::move(address));
    return absent();
  }
  // Not for HTTP.
  Client& client() noexcept { return *client_; }
  void add_to(Load& load) { http_ != nullptr ? load.add(*http_) : load.add(client()); }

 private:
  static Task<Result<void>> absent() {
    co_return hawser::fail(
        ErrorCode::unavailable,
        "this build has no such protocol: baidu_std needs zlib and snappy, grpc needs nghttp2, zlib and zstd, "
        "http needs the component http");
  }
  std::unique_ptr<HttpCaller> http_;
  std::optional<Client> client_;
};

// Measures the cells in turn, each over its own connections. A control connection asks the server for its processor
// time, unless it is another's.
class ClientMeasurement {
 public:
  ClientMeasurement(Loop& loop, const RunOptions& options, const std::string& transport, const std::string& address,
                    const EventWriter& events, std::optional<pid_t> other)
      : loop_(loop),
        options_(options),
        address_(address),
        events_(events),
        other_(other),
        control_(loop, client_options(options, {.transport = transport})) {}

  Task<bool> run(const std::vector<Cell>& cells) {
    if (other_) {
      events_.write(Connected{{.poller = "its own", .wait = "its own", .version = HAWSER_VERSION},
                              std::string(loop_.poller().name()),
                              cells.front().transport});
    } else {
      const Result<void> connected = co_await control_.connect(address_);
      if (!connected) co_return failed("cannot connect to " + address_ + ": " + connected.error().describe());
      Result<ServerFacts> facts = co_await control_.call<describe>();
      if (!facts) co_return failed("the server does not say what it is: " + facts.error().describe());
      events_.write(
          Connected{std::move(*facts), std::string(loop_.poller().name()), std::string(control_.transport())});
    }
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (!events_.write(CellBegun{i})) co_return false;
      if (!co_await measure(cells[i])) co_return false;
    }
    co_return true;
  }

 private:
  bool failed(std::string text) const {
    events_.write(Failed{std::move(text)});
    return false;
  }

  Task<bool> measure(Cell cell) {
    std::vector<std::unique_ptr<CellClient>> clients;
    const unsigned connections = cell.mode == Mode::connections ? cell.concurrency : 1;
    for (unsigned i = 0; i < connections; ++i) {
      clients.push_back(std::make_unique<CellClient>(loop_, options_, cell));
    }
    // Connects several clients at once: one after the other takes long for ten thousand.
    std::string refused;
    {
      Scope connecting;
      std::size_t next = 0;
      for (unsigned i = 0; i < connecting_at_once; ++i) connecting.spawn(connect_some(clients, next, refused));
      co_await connecting.join();
    }
    if (!refused.empty()) co_return failed("cannot connect to " + address_ + ": " + refused);

    RegisteredBuffer memory;
    if (options_.registered) {
      auto registered = RegisteredBuffer::allocate(clients.front()->client(), Payload::memory_bytes(cell.size_bytes));
      if (!registered) co_return failed("--registered: " + registered.error().describe());
      memory = std::move(*registered);
      if (!memory.registered()) co_return failed("--registered: " + memory.why_not());
    }
    const auto load = std::make_unique<Load>(
        loop_, options_, options_.registered ? Payload(cell.size_bytes, memory.memory()) : Payload(cell.size_bytes));
    CellResult result{.cell = cell, .calls_at_once = calls_at_once(options_, cell)};
    for (unsigned i = 0; i < result.calls_at_once; ++i) clients[i % clients.size()]->add_to(*load);
    co_await warm_up(*load);

    const Result<Usage> before = co_await server_usage();
    const Usage own_before = usage();
    const Clock::time_point begin = Clock::now();
    load->count(true);
    co_await count(*load);
    load->count(false);
    result.seconds = seconds_since(begin);
    const Usage own_after = usage();
    // The load continues until the server has answered, so that the server's usage is that of a busy server.
    const Result<Usage> after = co_await server_usage();
    const bool lost = load->idle();
    load->stop();
    co_await load->ended();

    fill(result, *load);
    result.client_cpu_s = static_cast<double>(own_after.cpu_ns - own_before.cpu_ns) / 1e9;
    if (before && after && after->clock_ns > before->clock_ns) {
      const double cpu = static_cast<double>(after->cpu_ns - before->cpu_ns);
      result.server_cpu_s = cpu / static_cast<double>(after->clock_ns - before->clock_ns) * result.seconds;
    }
    events_.write(result);
    if (lost) co_return failed("the server was lost: " + result.first_error);
    if (!after) co_return failed("the server was lost: " + after.error().describe());
    co_return true;
  }

  Task<Result<Usage>> server_usage() {
    if (other_) {
      co_return Usage{
          .cpu_ns = static_cast<std::int64_t>(processor_time_s(*other_) * 1e9),
          .clock_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count()};
    }
    co_return co_await control_.call<usage>();
  }

  // Connects the clients from `next` on. Several of these coroutines share `next`.
  Task<void> connect_some(const std::vector<std::unique_ptr<CellClient>>& clients, std::size_t& next,
                          std::string& refused) {
    while (next < clients.size() && refused.empty()) {
      CellClient& client = *clients[next++];
      const Result<void> connected = co_await client.connect(address_);
      if (!connected) refused = connected.error().describe();
    }
  }

  Task<void> warm_up(const Load& load) {
    const Clock::time_point begin = Clock::now();
    const double least = std::max(warm_up_s_min, warm_up_fraction * options_.seconds);
    while (!load.idle()) {
      const double passed = seconds_since(begin);
      if (passed >= least && (load.warm() || passed >= warm_up_s_max)) co_return;
      co_await loop_.sleep(duration_of(passed < least ? std::min(step_s, least - passed) : step_s));
    }
  }

  // Counts until the time has passed, and longer if no call has ended by then.
  Task<void> count(const Load& load) {
    const Clock::time_point begin = Clock::now();
    while (!load.idle()) {
      const double left = options_.seconds - seconds_since(begin);
      if (left <= 0 && (load.latencies_ns().count() > 0 || left < -options_.call_timeout_s)) co_return;
      co_await loop_.sleep(duration_of(left > 0 ? std::min(step_s, left) : step_s));
    }
  }

  static void fill(CellResult& result, const Load& load) {
    fill_latencies(result, load.latencies_ns());
    result.errors = load.errors();
    result.first_error = load.first_error();
  }

  Loop& loop_;
  const RunOptions& options_;
  const std::string& address_;
  const EventWriter& events_;
  const std::optional<pid_t> other_;
  Client control_;
};

}  // namespace

unsigned calls_at_once(const RunOptions& options, const Cell& cell) {
  if (cell.mode == Mode::pipeline) return cell.concurrency;
  const std::size_t calls = options.bytes_in_flight_max / cell.size_bytes;
  return static_cast<unsigned>(std::clamp<std::size_t>(calls, 1, cell.concurrency));
}

bool play_client(const RunOptions& options, const std::string& address, const std::vector<Cell>& cells,
                 const EventWriter& events, std::optional<pid_t> other) {
  // Coroutines that call by the clock need exact timers: the kernel adds up to 50 us by default.
  if (options.rate_per_s > 0) prctl(PR_SET_TIMERSLACK, 1UL);
  Loop loop(options.loop(cells.front().wait));
  ClientMeasurement measurement(loop, options, cells.front().transport, address, events, other);
  return loop.run(measurement.run(cells));
}

}  // namespace hawser::bench
