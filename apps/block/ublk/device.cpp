#include "block/ublk/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "block/nbd/client_name.h"
#include "block/nbd/remote_exports.h"
#include "block/nbd/remote_server.h"
#include "block/service.h"
#include "block/store/store_error.h"
#include "block/ublk/block_node.h"
#include "block/ublk/mark.h"
#include "block/ublk/queue.h"
#include "block/ublk/writeback.h"
#include "block/waited_loop.h"

namespace hawser::block::ublk {
namespace {

// Data of one request.
constexpr std::uint32_t ublk_io_bytes_max = 512 * 1024;

// A driver notices the end of a server at once, or within 30 s if all tags were in progress.
constexpr std::chrono::seconds predecessor_max{60};
constexpr std::chrono::milliseconds predecessor_pause{20};

bool is_errno(const Error& error, int number) noexcept {
  return error.code == ErrorCode::application && error.application_code == number;
}

std::string served_by(const UblkDeviceInfo& info) {
  return "ublk device " + std::to_string(info.device) + " is served by the process " + std::to_string(info.server);
}

}  // namespace

// Used by the thread's loop, except for itself.
struct UblkDevice::Served {
  explicit Served(const LoopOptions& options) : thread(options) {}
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  // A request that has not ended is not answered: the next process gets it.
  ~Served() {
    thread.run([this]() -> Task<void> {
      queue.reset();
      device.reset();
      exports.reset();
      co_return;
    });
  }

  WaitedLoop thread;
  std::unique_ptr<nbd::RemoteExports> exports;
  std::shared_ptr<nbd::NbdDevice> device;
  std::unique_ptr<UblkQueue> queue;
};

UblkDevice::UblkDevice(UblkControl control, UblkDeviceOptions options)
    : control_(std::move(control)), options_(std::move(options)), served_(std::make_unique<Served>(options_.loop)) {}

UblkDevice::~UblkDevice() = default;

Result<std::unique_ptr<UblkDevice>> UblkDevice::start(UblkDeviceOptions options) {
  Result<UblkControl> control = UblkControl::open();
  if (!control) return std::unexpected(control.error());
  const Result<void> prepared = prepare_for_writeback();
  std::unique_ptr<UblkDevice> device(new UblkDevice(std::move(*control), std::move(options)));
  if (!prepared) {
    device->served_->thread.loop().log(
        LogLevel::warning, "ublk",
        "without CAP_SYS_RESOURCE, the device may stop for ever when memory is short: " + prepared.error().text);
  }
  if (const Result<void> served = device->serve(); !served) return std::unexpected(served.error());
  return device;
}

Result<void> UblkDevice::serve() {
  if (const Result<void> found = find_volume(); !found) return found;
  const Result<UblkDeviceInfo> info =
      options_.recovers
          ? take_over()
          : control_.add({.depth = options_.depth,
                          .io_bytes_max = ublk_io_bytes_max,
                          .device = options_.number.value_or(~std::uint32_t{0}),
                          .server = ::getpid(),
                          .flags = feature::recovery | feature::recovery_reissue | feature::encoded_commands,
                          .mark = mark_});
  if (!info) return std::unexpected(info.error());
  number_ = info->device;
  Result<void> done;
  const std::string path = character_device_path(number_);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  done = descriptor < 0 ? system_fail(errno, "open " + path) : open_queue(descriptor, *info);
  if (done) done = check_medium();
  if (done && options_.recovers) return control_.end_recovery(number_);
  if (done) {
    const nbd::ExportInfo& volume = served_->device->info();
    done = control_.set_parameters(
        number_,
        parameters_of({.size = volume.size, .io_bytes_max = info->io_bytes_max, .read_only = volume.read_only}));
  }
  if (done) done = control_.start(number_);
  if (!done && !options_.recovers) (void)remove();
  return done;
}

// The device was opened between two looks at the volume, so that it has the medium of its mark.
Result<void> UblkDevice::check_medium() {
  const std::uint64_t before = mark_;
  Result<void> found = find_volume();
  if (!found || mark_ == before) return found;
  return store_fail(EIO, "the server of volume " + unique_name_ + " was replaced meanwhile: try again");
}

// Sets unique_name_ and mark_.
Result<void> UblkDevice::find_volume() {
  WaitedLoop& thread = served_->thread;
  return thread.run([&]() -> Task<Result<void>> {
    nbd::RemoteServer server(thread.loop(), options_.server, options_.client, options_.outage_max, {});
    const Time end = thread.loop().after(std::min<Duration>(options_.outage_max, nbd::first_outage_max));
    const Result<std::shared_ptr<nbd::RemoteOpening>> opening = co_await server.open(options_.volume, end, {});
    if (!opening) co_return std::unexpected(opening.error());
    const std::string& name = (*opening)->volume.name();
    unique_name_ = name.substr(0, name.find(opening_separator));
    mark_ = mark_of(unique_name_, (*opening)->medium->name, options_.client_name);
    co_return Result<void>{};
  });
}

// The device is of this volume, its medium and the name of this client.
Result<void> UblkDevice::check_mark(const UblkDeviceInfo& info) const {
  const std::string device = "ublk device " + std::to_string(info.device);
  switch (difference_of(info.mark, mark_)) {
    case UblkMarkPart::none: return {};
    case UblkMarkPart::volume: return store_fail(EINVAL, device + " belongs to another volume than " + unique_name_);
    case UblkMarkPart::medium: break;
    case UblkMarkPart::client:
      return store_fail(EINVAL,
                        device + " was made " +
                            (options_.client_name.empty()
                                 ? "with --client, and not without it"
                                 : "with another --client than " + options_.client_name + ", or without it") +
                            ": give that of the process that made it, so that the server ends what it has left");
  }
  return store_fail(EINVAL, "the server of volume " + unique_name_ +
                                " may have lost what was not flushed, or is another one: unmount " + device +
                                ", and remove it (--remove " + std::to_string(info.device) + ")");
}

// Waits until the predecessor has ended.
Result<UblkDeviceInfo> UblkDevice::take_over() {
  const std::uint32_t number = options_.number.value();
  Result<UblkDeviceInfo> info = control_.info(number);
  if (!info) return info;
  if (const Result<void> same = check_mark(*info); !same) return std::unexpected(same.error());
  const auto end = std::chrono::steady_clock::now() + predecessor_max;
  for (;;) {
    const Result<void> begun = control_.start_recovery(number);
    if (begun) return control_.info(number);
    if (!is_errno(begun.error(), EBUSY)) return std::unexpected(begun.error());
    if (std::chrono::steady_clock::now() >= end) return store_fail(EBUSY, served_by(*info) + ": end it first");
    std::this_thread::sleep_for(predecessor_pause);
  }
}

Result<void> UblkDevice::open_queue(int descriptor, UblkDeviceInfo info) {
  Served& served = *served_;
  const std::string name =
      options_.client_name.empty() ? nbd::client_name_of_device(block_device_path(number_)) : options_.client_name;
  if (name.empty()) {
    ::close(descriptor);
    return store_fail(ENOENT, "the start of the kernel is not known, because /proc is missing: give --client");
  }
  return served.thread.run([&]() -> Task<Result<void>> {
    Loop& loop = served.thread.loop();
    served.exports = std::make_unique<nbd::RemoteExports>(loop, options_.server, options_.client, VolumeRules{},
                                                          options_.outage_max, name);
    Result<std::shared_ptr<nbd::NbdDevice>> device = co_await served.exports->open(unique_name_, {});
    if (!device) {
      ::close(descriptor);
      co_return std::unexpected(device.error());
    }
    served.device = std::move(*device);
    Result<std::unique_ptr<UblkQueue>> queue = co_await UblkQueue::open(
        loop, *served.device, descriptor, {.depth = info.depth, .io_bytes_max = info.io_bytes_max});
    if (!queue) co_return std::unexpected(queue.error());
    served.queue = std::move(*queue);
    co_return Result<void>{};
  });
}

Result<void> UblkDevice::remove() {
  served_.reset();
  return control_.remove(number_);
}

Result<bool> UblkDevice::stop() {
  const std::string path = block_device_path(number_);
  const std::string waits = ". " + path + " waits for --recover " + std::to_string(number_) + " now";
  // Nobody mounts the device, or makes it a part of an array, before it has been stopped.
  const Result<nbd::SocketDescriptor> exclusive = open_exclusively(path, block_device_number_path(number_));
  if (!exclusive && is_errno(exclusive.error(), EBUSY)) return false;
  if (!exclusive) return store_fail(exclusive.error().application_code, exclusive.error().text + waits);
  // Pages that processes have written without a sync could not be written when the device has been stopped.
  if (exclusive->valid() && ::fsync(exclusive->get()) != 0) {
    const int error = errno;
    return store_fail(error, system_fail(error, "write back the pages of " + path).error().text + waits);
  }
  if (const Result<void> stopped = control_.stop(number_); !stopped) return std::unexpected(stopped.error());
  served_->thread.run([this]() -> Task<void> { co_await served_->queue->join(); });
  if (const Result<void> removed = remove(); !removed) return std::unexpected(removed.error());
  return true;
}

Result<void> remove_device(std::uint32_t number) {
  Result<UblkControl> control = UblkControl::open();
  if (!control) return std::unexpected(control.error());
  const Result<UblkDeviceInfo> info = control->info(number);
  if (!info) return std::unexpected(info.error());
  if (info->state == device_state::live) return store_fail(EBUSY, served_by(*info) + ": end this process instead");
  return control->remove(number);
}

}  // namespace hawser::block::ublk
