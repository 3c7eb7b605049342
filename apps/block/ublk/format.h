#pragma once

#include <sys/ioctl.h>

#include <cstdint>

// The interface of Linux's driver ublk_drv, as far as it is used here: include/uapi/linux/ublk_cmd.h of Linux 6.12. The
// header of Debian 12 is older. Numbers are those of the processor.
namespace hawser::block::ublk {

// Argument of the commands to /dev/ublk-control, within an entry of io_uring.
struct UblkControlCommand {
  std::uint32_t device = 0;
  std::uint16_t queue = 0xffff;  // None.
  std::uint16_t bytes = 0;       // The memory at `address` has so many.
  std::uint64_t address = 0;
  std::uint64_t data = 0;
  std::uint16_t path_bytes = 0;
  std::uint16_t padding = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(UblkControlCommand) == 32);

// Argument of the commands to /dev/ublkcN.
struct UblkIoCommand {
  std::uint16_t queue = 0;
  std::uint16_t tag = 0;
  std::int32_t result = 0;    // The request has ended with so many bytes, or a negated errno value.
  std::uint64_t address = 0;  // The data of the next request have memory here.
};
static_assert(sizeof(UblkIoCommand) == 16);

struct UblkDeviceInfo {
  std::uint16_t queues = 1;
  std::uint16_t depth = 0;
  std::uint16_t state = 0;
  std::uint16_t padding = 0;
  std::uint32_t io_bytes_max = 0;
  std::uint32_t device = ~std::uint32_t{0};  // The driver chooses one.
  std::int32_t server = 0;                   // Id of the process.
  std::uint32_t padding2 = 0;
  std::uint64_t flags = 0;
  std::uint64_t mark = 0;  // Kept for the server.
  std::uint32_t owner_uid = 0;
  std::uint32_t owner_gid = 0;
  std::uint64_t reserved[2] = {};
};
static_assert(sizeof(UblkDeviceInfo) == 64);

// The driver reads `bytes` of it. Later versions have more behind it.
struct UblkParameters {
  std::uint32_t bytes = sizeof(UblkParameters);
  std::uint32_t kinds = 0;
  // The basic ones.
  std::uint32_t attributes = 0;
  std::uint8_t logical_block_shift = 0;
  std::uint8_t physical_block_shift = 0;
  std::uint8_t io_preferred_shift = 0;
  std::uint8_t io_min_shift = 0;
  std::uint32_t sectors_per_request_max = 0;
  std::uint32_t chunk_sectors = 0;
  std::uint64_t sectors = 0;
  std::uint64_t virtual_boundary_mask = 0;
  // Parameters of discards.
  std::uint32_t discard_alignment = 0;
  std::uint32_t discard_granularity = 0;
  std::uint32_t discard_sectors_max = 0;
  std::uint32_t zero_sectors_max = 0;
  std::uint16_t discard_segments_max = 0;
  std::uint16_t reserved = 0;
  std::uint32_t padding = 0;
};
static_assert(sizeof(UblkParameters) == 64);

// A request of the kernel, in the memory that the driver shares: one for each tag.
struct UblkDescriptor {
  std::uint32_t operation_and_flags = 0;
  std::uint32_t sectors = 0;
  std::uint64_t first_sector = 0;
  std::uint64_t address = 0;
};
static_assert(sizeof(UblkDescriptor) == 24);

inline constexpr std::uint32_t kernel_sector_bytes = 512;

namespace control {
inline constexpr unsigned get_info = _IOR('u', 0x02, UblkControlCommand);
inline constexpr unsigned add = _IOWR('u', 0x04, UblkControlCommand);
inline constexpr unsigned start = _IOWR('u', 0x06, UblkControlCommand);
inline constexpr unsigned stop = _IOWR('u', 0x07, UblkControlCommand);
inline constexpr unsigned set_parameters = _IOWR('u', 0x08, UblkControlCommand);
inline constexpr unsigned start_recovery = _IOWR('u', 0x10, UblkControlCommand);
inline constexpr unsigned end_recovery = _IOWR('u', 0x11, UblkControlCommand);
inline constexpr unsigned remove_soon = _IOR('u', 0x14, UblkControlCommand);  // From Linux 6.9 on.
}  // namespace control

namespace io {
inline constexpr unsigned fetch = _IOWR('u', 0x20, UblkIoCommand);
inline constexpr unsigned commit_and_fetch = _IOWR('u', 0x21, UblkIoCommand);
}  // namespace io

// UblkDeviceInfo::flags.
namespace feature {
inline constexpr std::uint64_t recovery = 1U << 3;          // The device waits for another server when its server ends,
inline constexpr std::uint64_t recovery_reissue = 1U << 4;  // which gets its requests in progress again.
inline constexpr std::uint64_t encoded_commands = 1U << 6;  // The numbers of above.
}  // namespace feature

// UblkDeviceInfo::state.
namespace device_state {
inline constexpr std::uint16_t dead = 0;
inline constexpr std::uint16_t live = 1;
inline constexpr std::uint16_t quiesced = 2;  // Its server has ended.
}  // namespace device_state

// UblkParameters::kinds and ::attributes.
namespace parameter {
inline constexpr std::uint32_t basic = 1U << 0;
inline constexpr std::uint32_t discard = 1U << 1;
inline constexpr std::uint32_t read_only = 1U << 0;
inline constexpr std::uint32_t volatile_cache = 1U << 2;  // Flushes are sent.
inline constexpr std::uint32_t fua = 1U << 3;
}  // namespace parameter

// UblkDescriptor::operation_and_flags.
namespace operation {
inline constexpr std::uint32_t mask = 0xff;
inline constexpr std::uint32_t read = 0;
inline constexpr std::uint32_t write = 1;
inline constexpr std::uint32_t flush = 2;
inline constexpr std::uint32_t discard = 3;
inline constexpr std::uint32_t write_zeroes = 5;
inline constexpr std::uint32_t fua_flag = 1U << 13;
inline constexpr std::uint32_t no_unmap_flag = 1U << 15;
}  // namespace operation

}  // namespace hawser::block::ublk
