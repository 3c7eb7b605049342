#include "block/ublk/control.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "block/store/store_error.h"

namespace hawser::block::ublk {
namespace {

constexpr const char* control_path = "/dev/ublk-control";

// A command is given up that cannot be submitted for about five seconds.
constexpr int command_attempts_max = 500;
constexpr std::chrono::milliseconds command_pause{10};

template <class Object>
UblkControlCommand command_with(std::uint32_t device, Object& object) noexcept {
  return {.device = device, .bytes = sizeof(object), .address = reinterpret_cast<std::uintptr_t>(&object)};
}

UblkControlCommand command_of_server(std::uint32_t device) noexcept {
  return {.device = device, .data = static_cast<std::uint64_t>(::getpid())};
}

// Executes one command. A command that could not be submitted ends with its ring, so that it is never submitted later.
class CommandRing {
 public:
  explicit CommandRing(int driver) noexcept
      : driver_(driver), made_(::io_uring_queue_init(1, &uring_, IORING_SETUP_SQE128)) {}
  CommandRing(const CommandRing&) = delete;
  CommandRing& operator=(const CommandRing&) = delete;
  ~CommandRing() {
    if (made_ == 0) ::io_uring_queue_exit(&uring_);
  }

  // Returns the status of the driver, or a negated errno value.
  int execute(unsigned operation, const UblkControlCommand& command) noexcept {
    if (made_ < 0) return made_;
    ::io_uring_sqe* const entry = ::io_uring_get_sqe(&uring_);
    if (entry == nullptr) return -EBUSY;  // A new ring has an entry, which a compiler cannot see.
    std::memset(entry, 0, 2 * sizeof(*entry));
    entry->opcode = IORING_OP_URING_CMD;
    entry->fd = driver_;
    entry->cmd_op = operation;
    std::memcpy(entry->cmd, &command, sizeof(command));
    if (const int status = submit(); status < 0) return status;
    ::io_uring_cqe* completion = nullptr;
    int status = 0;
    do {
      status = ::io_uring_wait_cqe(&uring_, &completion);
    } while (status == -EINTR);
    return status < 0 ? status : completion->res;
  }

 private:
  // The kernel may have no memory for a moment.
  int submit() noexcept {
    int status = 0;
    for (int attempt = 0; attempt < command_attempts_max; ++attempt) {
      status = ::io_uring_submit(&uring_);
      if (status > 0) return 0;
      std::this_thread::sleep_for(command_pause);
    }
    return status == 0 ? -EAGAIN : status;
  }

  const int driver_;
  ::io_uring uring_{};
  const int made_;
};

}  // namespace

std::string block_device_path(std::uint32_t device) { return "/dev/ublkb" + std::to_string(device); }
std::string block_device_number_path(std::uint32_t device) {
  return "/sys/class/block/ublkb" + std::to_string(device) + "/dev";
}
std::string character_device_path(std::uint32_t device) { return "/dev/ublkc" + std::to_string(device); }

Result<UblkControl> UblkControl::open() {
  nbd::SocketDescriptor driver(::open(control_path, O_RDWR | O_CLOEXEC));
  if (driver.valid()) return UblkControl(std::move(driver));
  const int number = errno;
  const std::string text = std::string("open ") + control_path;
  if (number == ENOENT) return system_fail(number, text + " (run `modprobe ublk_drv`; Linux 6.9 or later has it)");
  return system_fail(number, text);
}

Result<void> UblkControl::execute(unsigned operation, UblkControlCommand command, const char* action) {
  CommandRing ring(driver_.get());
  const int status = ring.execute(operation, command);
  if (status < 0) return system_fail(-status, std::string(action) + " ublk device " + std::to_string(command.device));
  return {};
}

Result<UblkDeviceInfo> UblkControl::add(UblkDeviceInfo wanted) {
  Result<void> added = execute(control::add, command_with(wanted.device, wanted), "add");
  if (!added) return std::unexpected(added.error());
  return wanted;
}

Result<UblkDeviceInfo> UblkControl::info(std::uint32_t device) {
  UblkDeviceInfo info;
  Result<void> got = execute(control::get_info, command_with(device, info), "examine");
  if (!got) return std::unexpected(got.error());
  return info;
}

Result<void> UblkControl::set_parameters(std::uint32_t device, UblkParameters parameters) {
  return execute(control::set_parameters, command_with(device, parameters), "set the parameters of");
}

Result<void> UblkControl::start(std::uint32_t device) {
  return execute(control::start, command_of_server(device), "start");
}

Result<void> UblkControl::stop(std::uint32_t device) { return execute(control::stop, {.device = device}, "stop"); }

Result<void> UblkControl::remove(std::uint32_t device) {
  return execute(control::remove_soon, {.device = device}, "remove");
}

Result<void> UblkControl::start_recovery(std::uint32_t device) {
  return execute(control::start_recovery, {.device = device}, "begin to recover");
}

Result<void> UblkControl::end_recovery(std::uint32_t device) {
  return execute(control::end_recovery, command_of_server(device), "recover");
}

}  // namespace hawser::block::ublk
