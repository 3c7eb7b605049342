#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "block/command.h"
#include "block/stop_signal.h"
#include "block/ublk/device.h"
#include "block/volume_server_options.h"
#include "process/program.h"

namespace hawser::block {
namespace {

struct UblkOptions {
  VolumeServerOptions remote = {};
  std::string volume = {};
  std::uint16_t depth = ublk::UblkDeviceOptions{}.depth;
  Wait wait = Wait::spin;
  std::optional<std::uint32_t> device = {};
  std::optional<std::uint32_t> recover = {};
  std::optional<std::uint32_t> remove = {};
};

int ublk_failed(const Error& error) {
  fmt::print(stderr, "hawser-block: {}\n", error.text);
  return 1;
}

int serve_ublk(const UblkOptions& options) {
  const StopSignal stop(false);
  const Result<std::unique_ptr<ublk::UblkDevice>> device =
      ublk::UblkDevice::start({.server = options.remote.connect,
                               .client = options.remote.client_options(),
                               .volume = options.volume,
                               .outage_max = options.remote.outage_max(),
                               .client_name = options.remote.client,
                               .loop = {.wait = options.wait},
                               .depth = options.depth,
                               .number = options.recover ? options.recover : options.device,
                               .recovers = options.recover.has_value()});
  if (!device) return ublk_failed(device.error());
  const std::string path = ublk::block_device_path((*device)->number());
  process::announce(
      fmt::format("hawser-block: volume {} of {} is at {}\n", options.volume, options.remote.connect, path));
  stop.wait({});
  const Result<bool> stopped = (*device)->stop();
  if (!stopped) return ublk_failed(stopped.error());
  if (!*stopped) {
    process::announce(fmt::format("hawser-block: {} is in use and waits for `hawser-block ublk --recover {}`\n", path,
                                  (*device)->number()));
  }
  return 0;
}

}  // namespace

Run add_ublk(CLI::App& command) {
  auto options = std::make_shared<UblkOptions>();
  CLI::Option* const volume = command.add_option("NAME", options->volume, "The volume");
  add_volume_server_options(command, options->remote, "the start of the kernel and the device");
  CLI::Option* const device =
      command.add_option("--device", options->device, "Number N of /dev/ublkbN. Default: a free one");
  CLI::Option* const depth =
      command.add_option("--depth", options->depth, "Requests of the kernel in progress at once")
          ->check(CLI::Range(1, 1024))
          ->capture_default_str();
  CLI::Option* const recover =
      command
          .add_option("--recover", options->recover,
                      "Take the device of this number over, whose process has ended: it may be mounted")
          ->excludes(device)
          ->excludes(depth);
  command
      .add_option("--remove", options->remove,
                  "Only remove the device of this number, whose process has ended. Its requests fail")
      ->excludes(volume)
      ->excludes(device)
      ->excludes(recover);
  add_wait(command, options->wait);
  return [options] {
    if (options->remove) {
      const Result<void> removed = ublk::remove_device(*options->remove);
      return removed ? 0 : ublk_failed(removed.error());
    }
    if (options->volume.empty()) {
      fmt::print(stderr, "hawser-block: no volume: give its name, or --remove NUMBER\n");
      return wrong_options_status;
    }
    return serve_ublk(*options);
  };
}

}  // namespace hawser::block
