#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "block/command.h"
#include "block/service.h"
#include "block/store/disk_directory.h"
#include "block/store/store.h"
#include "hawser/server.h"
#include "process/program.h"

namespace hawser::block {
namespace {

struct ServeOptions {
  std::string listen = "127.0.0.1:7750";
  std::string data = {};
  std::uint64_t memory_bytes = 0;
  unsigned threads = 1;
  unsigned disk_threads = 8;
  bool read_only = false;
  bool buffered = false;
};

int failed(const Error& error) {
  fmt::print(stderr, "hawser-block: {}\n", error.text);
  return 1;
}

Result<std::unique_ptr<VolumeStore>> open_store(const ServeOptions& options) {
  if (options.memory_bytes != 0) return VolumeStore::open(std::make_unique<MemoryDirectory>(options.memory_bytes), {});
  Result<std::unique_ptr<VolumeDirectory>> directory =
      DiskDirectory::open(options.data, {.read_only = options.read_only, .direct = !options.buffered});
  if (!directory) return std::unexpected(directory.error());
  return VolumeStore::open(std::move(*directory), {.read_only = options.read_only});
}

int serve(const ServeOptions& options) {
  // Blocked before threads start, so that sigwait() receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const Result<std::unique_ptr<VolumeStore>> store = open_store(options);
  if (!store) return failed(store.error());
  VolumeService service(**store);
  for (const VolumeStatus& volume : service.list()) {
    if (!volume.error.empty()) fmt::print(stderr, "hawser-block: {}\n", volume.error);
  }
  ServerOptions server_options;
  server_options.listen = options.listen;
  server_options.threads = options.threads;
  server_options.loop.offload_threads_max = options.disk_threads;
  Server server(server_options);
  service.attach(server);
  if (const Result<void> started = server.start(); !started) return failed(started.error());
  programs::announce(
      fmt::format("hawser-block: serving {} volumes at {}\n", (*store)->names().size(), server.address()));
  int signal = 0;
  sigwait(&signals, &signal);
  server.stop(std::chrono::seconds(1));
  if (const Result<void> closed = (*store)->close(); !closed) return failed(closed.error());
  return 0;
}

}  // namespace

Run add_serve(CLI::App& command) {
  auto options = std::make_shared<ServeOptions>();
  CLI::Option* const data =
      command.add_option("--data", options->data, "Folder of the volumes. It is made if it does not exist");
  command
      .add_option("--memory", options->memory_bytes,
                  "Keep the volumes in memory, at most so much, such as 4G. They are lost at the end")
      ->excludes(data)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1} << 20, std::uint64_t{1} << 46));
  command.add_option("--listen", options->listen, "Address: HOST:PORT, unix:/path or unix:@name")
      ->capture_default_str();
  command.add_option("--threads", options->threads, "Threads that serve connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--disk-threads", options->disk_threads, "Requests in progress at once, for each thread")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_flag("--read-only", options->read_only, "Volumes are only read")->needs(data);
  command.add_flag("--buffered", options->buffered, "Read and write data through the cache of the kernel")->needs(data);
  return [options] {
    if (options->data.empty() && options->memory_bytes == 0) {
      fmt::print(stderr, "hawser-block: no place for the volumes: give --data FOLDER or --memory SIZE\n");
      return wrong_options_status;
    }
    return serve(*options);
  };
}

}  // namespace hawser::block
