#include "block/ublk/control.h"

#include <fcntl.h>
#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "block/store/store_error.h"

namespace hawser::block::ublk {
namespace {

constexpr const char* control_path = "/dev/ublk-control";

template <class Object>
UblkControlCommand command_with(std::uint32_t device, Object& object) noexcept {
  return {.device = device, .bytes = sizeof(object), .address = reinterpret_cast<std::uintptr_t>(&object)};
}

UblkControlCommand command_of_server(std::uint32_t device) noexcept {
  return {.device = device, .data = static_cast<std::uint64_t>(::getpid())};
}

}  // namespace

std::string block_device_path(std::uint32_t device) { return "/dev/ublkb" + std::to_string(device); }
std::string character_device_path(std::uint32_t device) { return "/dev/ublkc" + std::to_string(device); }

struct UblkControl::Ring {
  Ring() noexcept = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (made) ::io_uring_queue_exit(&uring);
    if (descriptor >= 0) ::close(descriptor);
  }

  ::io_uring uring{};
  bool made = false;
  int descriptor = -1;  // The open file /dev/ublk-control.
};

UblkControl::UblkControl(std::unique_ptr<Ring> ring) noexcept : ring_(std::move(ring)) {}
UblkControl::UblkControl(UblkControl&&) noexcept = default;
UblkControl::~UblkControl() = default;

Result<UblkControl> UblkControl::open() {
  auto ring = std::make_unique<Ring>();
  ring->descriptor = ::open(control_path, O_RDWR | O_CLOEXEC);
  if (ring->descriptor < 0) {
    const int number = errno;
    const std::string text = std::string("open ") + control_path;
    if (number == ENOENT) return system_fail(number, text + " (run `modprobe ublk_drv`; Linux 6.9 or later has it)");
    return system_fail(number, text);
  }
  const int made = ::io_uring_queue_init(4, &ring->uring, IORING_SETUP_SQE128);
  if (made < 0) return system_fail(-made, "make a ring for the commands of the driver ublk_drv");
  ring->made = true;
  return UblkControl(std::move(ring));
}

Result<void> UblkControl::execute(unsigned operation, UblkControlCommand command, const char* action) {
  ::io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_->uring);
  if (entry == nullptr) std::abort();  // The ring is empty: each command waits for its completion.
  std::memset(entry, 0, 2 * sizeof(*entry));
  entry->opcode = IORING_OP_URING_CMD;
  entry->fd = ring_->descriptor;
  entry->cmd_op = operation;
  std::memcpy(entry->cmd, &command, sizeof(command));
  ::io_uring_submit(&ring_->uring);
  ::io_uring_cqe* completion = nullptr;
  int status = 0;
  do {
    status = ::io_uring_wait_cqe(&ring_->uring, &completion);
  } while (status == -EINTR);
  if (status == 0) {
    status = completion->res;
    ::io_uring_cqe_seen(&ring_->uring, completion);
  }
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
