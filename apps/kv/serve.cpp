#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/kv.h"
#include "hawser/server.h"
#include "hawser/service_manager.h"
#include "kv/command.h"
#include "kv/index_publication.h"
#include "kv/password_files.h"
#include "kv/password_gate.h"
#include "kv/service.h"
#include "kv/store.h"
#include "process/loop_pulse.h"
#include "process/program.h"
#include "tls/server_options.h"

namespace hawser::kv {
namespace {

struct StoreServeOptions {
  std::string listen = "127.0.0.1:6379";
  std::size_t memory_bytes = std::size_t{256} << 20;
  std::size_t value_bytes_max = std::size_t{64} << 20;
  std::size_t index_bytes = std::size_t{64} << 20;
  unsigned threads = 1;
  int cpu = -1;
  std::string policy = "evict";
  std::string wait = "spin";
  std::string poller = "automatic";
  std::string log = {};
  std::string sync = "second";
  std::size_t rewrite_bytes = std::size_t{64} << 20;
  std::vector<std::string> transports = {"automatic"};
  std::vector<std::string> password_files = {};
  programs::TlsServerGiven tls;
};

// Blocks the signals that end the program, so that wait() receives them.
class EndSignals {
 public:
  EndSignals() { pthread_sigmask(SIG_BLOCK, &set_, nullptr); }
  void wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }
  // Returns false if none has come within `time`.
  bool wait_for(Duration time) const {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (time - seconds) / std::chrono::nanoseconds(1)};
    return sigtimedwait(&set_, nullptr, &limit) > 0;
  }

 private:
  sigset_t set_ = process::ending_signals();
};

// Memory of one shard. Its positions have 32 bits and count 16 bytes.
constexpr std::size_t shard_bytes_min = std::size_t{1} << 20;
constexpr std::size_t shard_bytes_max = std::size_t{63} << 30;

// Requests that have not arrived completely, and replies that are not read, have at most this part of --memory. A
// connection may use half of it, and the connections of one address three quarters.
constexpr std::size_t traffic_parts = 3;
constexpr std::size_t traffic_parts_of = 4;
// Longer pieces of memory are mappings of their own, and return to the system when they are freed. Otherwise malloc()
// raises this limit to 32 MiB, and what requests and replies leave behind in its heaps was four times --memory.
constexpr int mapped_bytes_min = 1 << 20;
// A request has at most so many bytes beside its value.
constexpr std::size_t request_margin_bytes = std::size_t{4} << 20;

// A shorter password causes a warning.
constexpr std::size_t password_bytes_wanted = 16;

// Descriptors for ServerOptions::connections_max connections, and for the rest.
constexpr std::uint64_t descriptors_wanted = 65'536 + 1024;

// A connection that has sent nothing ends after this time.
constexpr Duration silent_max = std::chrono::hours(1);

TransportOptions transports_of(const std::vector<std::string>& names) {
  TransportOptions transports;
  transports.enabled.clear();
  for (const std::string& name : names) {
    if (name == "shm" || name == "automatic") transports.enable(shm());
    std::error_code absent;
    const bool device = name == "automatic" && !std::filesystem::is_empty("/sys/class/infiniband", absent) && !absent;
    if (name == "rdma" || device) transports.enable(rdma());
  }
  return transports;
}

// A warning for each fault that makes a password less useful.
void warn_of_password(const std::string& file, const std::string& password) {
  if (password.size() < password_bytes_wanted) {
    fmt::print(stderr,
               "hawser-kv: warning: the password in {} has {} bytes, and shorter ones than {} can be guessed: make one "
               "with `openssl rand -base64 32`\n",
               file, password.size(), password_bytes_wanted);
  }
  struct stat status{};
  if (stat(file.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0) {
    fmt::print(stderr, "hawser-kv: warning: every user of this machine can read {}: use `chmod 600 {}`\n", file, file);
  }
}

Result<std::vector<std::string>> read_passwords(PasswordFiles& files) {
  TRY(std::vector<std::string> passwords, files.read());
  for (std::size_t i = 0; i < passwords.size(); ++i) warn_of_password(files.names()[i], passwords[i]);
  return passwords;
}

void read_changed_passwords(PasswordFiles& files, PasswordGate& gate) {
  if (!files.changed() || !files.settled()) return;
  if (Result<std::vector<std::string>> passwords = read_passwords(files)) {
    gate.set_passwords(std::move(*passwords));
    process::announce("hawser-kv: the password files were read again\n");
  } else {
    fmt::print(stderr, "hawser-kv: the old passwords stay: {}\n", passwords.error().text);
  }
}

// Serves until the program is requested to end. Passwords whose files have changed are read again, a second after the
// last change. The manager's watchdog is notified while every loop of the server runs. `pulse` and `gate` may be null.
void serve_until_end(const EndSignals& signals, ServiceManager& manager, process::LoopPulse* pulse,
                     PasswordFiles& files, PasswordGate* gate) {
  if (pulse == nullptr && gate == nullptr) return signals.wait();
  Duration step = std::chrono::seconds(1);
  if (pulse != nullptr) step = std::min(step, manager.watchdog() / process::pulses_per_watchdog);
  while (!signals.wait_for(step)) {
    if (pulse != nullptr && pulse->all_beat()) manager.alive();
    if (gate != nullptr) read_changed_passwords(files, *gate);
  }
}

// For a loop whose shard has so many bytes. Each part has room for one request.
void bound_memory(ServerOptions& options, std::size_t shard_bytes, std::size_t value_bytes_max) {
  options.message_bytes_max = value_bytes_max + request_margin_bytes;
  options.receive_bytes_max = std::max(shard_bytes / traffic_parts_of * traffic_parts, options.message_bytes_max);
  options.receive_share_bytes_max = std::max(options.receive_bytes_max / 2, options.message_bytes_max);
  options.receive_peer_bytes_max = std::max(options.receive_bytes_max / 4 * 3, options.message_bytes_max);
}

// Reads the log into the store, and reports on it. Later changes are added to it.
Result<void> read_log(Store& store, const StoreServeOptions& options) {
  const LogSync sync = options.sync == "always"   ? LogSync::always
                       : options.sync == "second" ? LogSync::second
                                                  : LogSync::never;
  TRY(const LogReport report,
      store.open_log(
          {.folder = options.log, .shards = {.sync = sync, .rewriting = {.bytes_min = options.rewrite_bytes}}}));
  process::announce(fmt::format("hawser-kv: read {} from {} of the log\n", count_text(report.records, "record"),
                                count_text(report.files, "file")));
  if (report.cut_bytes == 0) return {};
  fmt::print(stderr, "hawser-kv: {} at the end of {} without a complete record, which the server does not use:\n",
             count_text(report.cut_bytes, "byte"), count_text(report.cut_files, "file"));
  for (const std::filesystem::path& path : report.kept) fmt::print(stderr, "hawser-kv: {} has them\n", path.string());
  return {};
}

void set_server_options(ServerOptions& server, const StoreServeOptions& options) {
  server.transports = transports_of(options.transports);
  server.threads = options.threads;
  server.loop.wait = options.wait == "event" ? Wait::event : Wait::spin;
  server.loop.poller = options.poller == "io_uring" ? PollerKind::io_uring
                       : options.poller == "epoll"  ? PollerKind::epoll
                                                    : PollerKind::automatic;
  for (unsigned i = 0; options.cpu >= 0 && i < options.threads; ++i) {
    server.cpus.push_back(options.cpu + static_cast<int>(i));
  }
  // Pools of Redis clients open connections long before they send a request on them. Such a connection costs as much as
  // one that has sent a request.
  server.handshakes_max = server.connections_max;
  server.handshake_timeout = silent_max;
}

int serve(const StoreServeOptions& options) {
  const std::size_t shard_bytes = options.memory_bytes / options.threads;
  if (shard_bytes < shard_bytes_min || shard_bytes > shard_bytes_max) {
    fmt::print(stderr,
               "hawser-kv: --memory: {} bytes for --threads {} are {} bytes for each thread, and {} to {} are "
               "possible: change --memory or --threads\n",
               options.memory_bytes, options.threads, shard_bytes, shard_bytes_min, shard_bytes_max);
    return wrong_options_status;
  }
  mallopt(M_MMAP_THRESHOLD, mapped_bytes_min);
  mallopt(M_TRIM_THRESHOLD, 2 * mapped_bytes_min);
  ServiceManager manager;
  const EndSignals signals;
  ServerOptions server_options;
  if (const Result<void> secured = programs::enable_tls(server_options, options.tls); !secured) {
    fmt::print(stderr, "hawser-kv: {}\n", secured.error().text);
    return wrong_options_status;
  }
  std::shared_ptr<PasswordGate> gate;
  PasswordFiles password_files(options.password_files);
  if (!options.password_files.empty()) {
    Result<std::vector<std::string>> passwords = read_passwords(password_files);
    if (!passwords) {
      fmt::print(stderr, "hawser-kv: {}\n", passwords.error().text);
      return wrong_options_status;
    }
    gate = std::make_shared<PasswordGate>(std::move(*passwords));
  }
  Store store({.memory_bytes = options.memory_bytes,
               .policy = options.policy == "refuse" ? MemoryPolicy::refuse : MemoryPolicy::evict,
               .shards = options.threads,
               .value_bytes_max = std::min(options.value_bytes_max, shard_bytes),
               .index_bytes_max = options.index_bytes});
  if (!options.log.empty()) {
    if (const Result<void> read = read_log(store, options); !read) {
      fmt::print(stderr, "hawser-kv: {}\n", read.error().text);
      return 1;
    }
  }
  process::raise_descriptor_limit(descriptors_wanted);
  server_options.listen = manager.listen(options.listen);
  set_server_options(server_options, options);
  bound_memory(server_options, shard_bytes, store.options().value_bytes_max);
  Server server(server_options);
  Service service(store);
  attach_store(server, store, service, gate);
  store.bind_on_use([&server] { return server.loops(); });
  // Readers of an index of an earlier process may have values until its lease ends.
  if (options.index_bytes != 0) std::this_thread::sleep_for(IndexPublication::lease);
  if (const Result<void> started = server.start(); !started) {
    fmt::print(stderr, "hawser-kv: {}\n", started.error().text);
    return 1;
  }
  store.ensure_bound();
  for (std::size_t i = 0; i < server.loops().size(); ++i) {
    static_cast<void>(server.spawn([&store](Background background) { return store.maintain(background); }));
  }
  const std::string status = fmt::format("serving at {} with {} and {} MiB", server.address(),
                                         count_text(options.threads, "shard"), options.memory_bytes >> 20);
  process::announce(fmt::format("hawser-kv: {}\n", status));
  manager.ready(status);
  std::optional<process::LoopPulse> pulse;
  if (manager.watchdog() > Duration::zero()) pulse.emplace(server, manager.watchdog() / process::pulses_per_watchdog);
  serve_until_end(signals, manager, pulse ? &*pulse : nullptr, password_files, gate.get());
  manager.stopping();
  store.holds().end();
  server.stop(std::chrono::seconds(1));
  if (const Result<void> closed = store.close_log(); !closed) {
    fmt::print(stderr, "hawser-kv: {}\n", closed.error().text);
    return 1;
  }
  return 0;
}

}  // namespace

Run add_serve(CLI::App& command) {
  auto options = std::make_shared<StoreServeOptions>();
  command
      .add_option("--listen", options->listen,
                  "Address: HOST:PORT, unix:/path, unix:@name or fd:3. Sockets that systemd passes take its place")
      ->capture_default_str();
  command.add_option("--memory", options->memory_bytes, "Memory of the store, such as 256M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1} << 20, std::size_t{1} << 46));
  command.add_option("--value-max", options->value_bytes_max, "Longest value, such as 64M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1} << 10, std::size_t{1} << 30));
  command
      .add_option("--index", options->index_bytes,
                  "Memory beyond --memory for entries that clients read without calls, such as 64M. 0: none")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 40));
  command.add_option("--threads", options->threads, "Threads, each with a loop and a shard")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--cpu", options->cpu, "Processor of the first thread; the others follow. Default: not pinned")
      ->check(CLI::Range(0, 1023));
  command
      .add_option("--wait", options->wait,
                  "spin: a thread without requests polls for a short time before it sleeps. event: it sleeps at once, "
                  "which takes less processor time")
      ->check(CLI::IsMember({"spin", "event"}))
      ->capture_default_str();
  command.add_option("--poller", options->poller, "How a thread waits for its connections")
      ->check(CLI::IsMember({"automatic", "epoll", "io_uring"}))
      ->capture_default_str();
  command.add_option("--policy", options->policy, "When the memory is used up: evict entries, or refuse writes")
      ->check(CLI::IsMember({"evict", "refuse"}))
      ->capture_default_str();
  auto* const log = command.add_option("--log", options->log,
                                       "Folder of the append-only log, from which the store is read at the start. "
                                       "Default: the store is lost at the end");
  command.add_option("--fsync", options->sync, "When writes of the log reach the disk")
      ->check(CLI::IsMember({"always", "second", "never"}))
      ->capture_default_str()
      ->needs(log);
  command
      .add_option("--log-rewrite", options->rewrite_bytes,
                  "A log file that has doubled is rewritten when it has so many bytes, such as 64M")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1} << 12, std::size_t{1} << 46))
      ->needs(log);
  command
      .add_option("--transports", options->transports,
                  "Transports beside the byte stream for clients of Hawser: shm, rdma, or both separated by a comma. "
                  "none: only the byte stream. automatic: shm, and rdma if there is a device")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "rdma", "none", "automatic"}))
      ->capture_default_str();
  command
      .add_option("--password-file", options->password_files,
                  "File whose only line is the password that every client needs. It is read again when it changes. "
                  "Given twice: either password. Absent: none is needed")
      ->expected(1, static_cast<int>(PasswordGate::passwords_max));
  programs::add_tls_server_options(command, options->tls);
  return [options] { return serve(*options); };
}

}  // namespace hawser::kv
