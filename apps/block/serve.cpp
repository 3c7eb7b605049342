#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "block/command.h"
#include "block/nbd/front.h"
#include "block/nbd/stored_exports.h"
#include "block/reload_rules.h"
#include "block/request_memory.h"
#include "block/service.h"
#include "block/stop_signal.h"
#include "block/store/disk_directory.h"
#include "block/store/store.h"
#include "block/volume_rules.h"
#include "block/volumes_page.h"
#include "hawser/http.h"
#include "hawser/pages.h"
#include "hawser/server.h"
#include "hawser/service_manager.h"
#include "process/loop_pulse.h"
#include "process/program.h"
#include "tls/server_options.h"

namespace hawser::block {
namespace {

struct ServeOptions {
  std::string listen = "127.0.0.1:7750";
  std::string nbd = {};
  std::size_t nbd_connections = nbd::NbdLimits{}.connections_max;
  std::string rules = {};
  std::string data = {};
  std::uint64_t memory_bytes = 0;
  std::uint64_t memory_in_flight = memory_in_flight_usual;
  unsigned threads = 1;
  unsigned disk_threads = 8;
  Wait wait = Wait::spin;
  std::vector<std::string> transports = {"shm"};
  bool read_only = false;
  bool buffered = false;
  bool checksums = false;  // With --memory; volumes in files always have them.
  bool pages = false;
  programs::TlsServerGiven tls = {};
  // Requests that do not move to another thread, which takes longer than a small request to a volume in memory.
  std::size_t direct_bytes_max() const noexcept { return memory_bytes == 0 ? 0 : 64 * 1024; }
};

// Descriptors for the connections, and for 2 files of each volume.
constexpr std::uint64_t descriptors_wanted = 131'072;

int failed(const Error& error) {
  fmt::print(stderr, "hawser-block: {}\n", error.text);
  return 1;
}

Result<std::unique_ptr<VolumeStore>> open_store(const ServeOptions& options) {
  if (options.memory_bytes != 0) {
    return VolumeStore::open(std::make_unique<MemoryDirectory>(options.memory_bytes), {.checksums = options.checksums});
  }
  Result<std::unique_ptr<VolumeDirectory>> directory =
      DiskDirectory::open(options.data, {.read_only = options.read_only, .direct = !options.buffered});
  if (!directory) return std::unexpected(directory.error());
  return VolumeStore::open(std::move(*directory), {.read_only = options.read_only});
}

Result<std::unique_ptr<nbd::Front>> open_front(const ServeOptions& options, VolumeStore& store,
                                               const VolumeRules& rules,
                                               std::shared_ptr<transport::ServerSecurity> security) {
  nbd::FrontOptions front{
      .listen = options.nbd, .limits = {.connections_max = options.nbd_connections}, .security = std::move(security)};
  front.loop.offload_threads_max = options.disk_threads;
  front.loop.wait = options.wait;
  return nbd::Front::start(std::move(front), [&](Loop& loop) {
    return std::make_unique<nbd::StoredExports>(
        loop, store, nbd::StoredExportsOptions{.direct_bytes_max = options.direct_bytes_max()}, rules);
  });
}

TransportOptions transports_served(const std::vector<std::string>& names) {
  TransportOptions transports{.enabled = {}};
  for (const std::string& name : names) {
    if (name == "shm") transports.enable(shm());
    if (name == "rdma") transports.enable(rdma());
    if (name == "ucx") transports.enable(ucx());
  }
  return transports;
}

int serve(const ServeOptions& options) {
  keep_request_memory();
  const StopSignal stop(!options.rules.empty());
  Result<VolumeRules> rules = VolumeRules::load_if_given(options.rules);
  if (!rules) {
    fmt::print(stderr, "hawser-block: {}\n", rules.error().text);
    return wrong_options_status;
  }
  ServiceManager manager;
  ServerOptions server_options;
  if (const Result<void> secured = programs::enable_tls(server_options, options.tls); !secured) {
    fmt::print(stderr, "hawser-block: {}\n", secured.error().text);
    return wrong_options_status;
  }
  process::raise_descriptor_limit(descriptors_wanted);
  const Result<std::unique_ptr<VolumeStore>> store = open_store(options);
  if (!store) return failed(store.error());
  VolumeService service(**store, options.memory_in_flight, *rules, options.direct_bytes_max());
  for (const std::string& warning : (*store)->warnings()) fmt::print(stderr, "hawser-block: {}\n", warning);
  server_options.listen = manager.listen(options.listen);
  server_options.threads = options.threads;
  server_options.loop.offload_threads_max = options.disk_threads;
  server_options.loop.wait = options.wait;
  server_options.transports = transports_served(options.transports);
  Server server(server_options);
  service.attach(server);
  if (options.pages) {
    const std::string title = options.memory_bytes != 0 ? "Volumes in memory" : "Volumes in " + options.data;
    // The functions of the service are not served over HTTP: a page of another site could call them.
    enable_pages(
        server,
        {.changes = PageAccess::off, .title = "hawser-block", .application = {volumes_page(**store, *rules, title)}},
        http({.functions = false}));
  }
  if (const Result<void> started = server.start(); !started) return failed(started.error());
  const std::size_t volumes = (*store)->names().size();
  const std::string status =
      fmt::format("serving {} volume{} at {}", volumes, volumes == 1 ? "" : "s", server.address());
  process::announce(fmt::format("hawser-block: {}\n", status));
  Result<std::unique_ptr<nbd::Front>> front = nullptr;
  if (!options.nbd.empty()) {
    front = open_front(options, **store, *rules, server_options.security);
    if (!front) return failed(front.error());
    process::announce(fmt::format("hawser-block: serving them for NBD at {}\n", (*front)->address()));
  }
  manager.ready(status);
  const auto reload = [&] { reload_rules(*rules, options.rules); };
  std::optional<process::LoopPulse> pulse;
  if (manager.watchdog() > Duration::zero()) {
    const Duration step = manager.watchdog() / process::pulses_per_watchdog;
    pulse.emplace(server, step);
    stop.wait(reload, step, [&] {
      if (pulse->all_beat()) manager.alive();
    });
  } else {
    stop.wait(reload);
  }
  manager.stopping();
  if (*front) (*front)->stop(std::chrono::seconds(1));
  server.stop(std::chrono::seconds(1));
  if (const Result<void> closed = (*store)->close(); !closed) return failed(closed.error());
  return 0;
}

}  // namespace

Run add_serve(CLI::App& command) {
  auto options = std::make_shared<ServeOptions>();
  CLI::Option* const data =
      command.add_option("--data", options->data, "Folder of the volumes. It is made if it does not exist");
  CLI::Option* const memory =
      command
          .add_option("--memory", options->memory_bytes,
                      "Keep the volumes in memory, at most so much, such as 4G. They are lost at the end")
          ->excludes(data)
          ->transform(CLI::AsSizeValue(false))
          ->check(CLI::Range(std::uint64_t{1} << 20, std::uint64_t{1} << 46));
  command
      .add_flag("--checksums", options->checksums,
                "Verify each block of volumes in memory too, against errors of memory")
      ->needs(memory);
  command
      .add_option("--listen", options->listen,
                  "Address: HOST:PORT, unix:/path or unix:@name. Sockets that systemd passes take its place")
      ->capture_default_str();
  command.add_option("--nbd", options->nbd,
                     "Address for clients of NBD, in addition: HOST:PORT, unix:/path or unix:@name");
  command.add_option("--nbd-connections", options->nbd_connections, "Connections of clients of NBD; further ones wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--rules", options->rules,
                     "File that says who may read, write and manage which volumes. SIGHUP reads it again");
  command.add_option("--threads", options->threads, "Threads that serve connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--disk-threads", options->disk_threads, "Requests in progress at once, for each thread")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      .add_option("--memory-in-flight", options->memory_in_flight,
                  "Memory of reads and writes in progress of all clients, such as 1G. Reads beyond it wait")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(request_bytes_max, std::uint64_t{1} << 46));
  command
      .add_option("--transports", options->transports,
                  "Beside the byte stream, for clients of Hawser: shm, rdma, ucx, several with ',' between, or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"shm", "rdma", "ucx", "none"}))
      ->capture_default_str();
  add_wait(command, options->wait);
  command.add_flag("--pages", options->pages,
                   "Serve pages about the server and its volumes over HTTP at --listen, to clients of this machine");
  command.add_flag("--read-only", options->read_only, "Volumes are only read")->needs(data);
  command.add_flag("--buffered", options->buffered, "Read and write data through the cache of the kernel")->needs(data);
  programs::add_tls_server_options(command, options->tls);
  return [options] {
    if (options->data.empty() && options->memory_bytes == 0) {
      fmt::print(stderr, "hawser-block: no place for the volumes: give --data FOLDER or --memory SIZE\n");
      return wrong_options_status;
    }
    return serve(*options);
  };
}

}  // namespace hawser::block
