#pragma once

#include <cstdint>
#include <expected>

#include "block/nbd/exports.h"
#include "block/ublk/format.h"
#include "hawser/bytes.h"
#include "hawser/task.h"

namespace hawser::block::ublk {

// Limits of the requests of a device.
struct UblkLimits {
  std::uint64_t size = 0;  // The device has so many bytes.
  std::uint32_t io_bytes_max = 0;
  bool read_only = false;
};

// A request of the kernel.
struct UblkRequest {
  enum class Kind : std::uint8_t { read, write, flush, discard, write_zeroes };

  Kind kind = Kind::flush;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool fua = false;         // For writes and zeros: they are durable at the end.
  bool deallocate = false;  // Zeros may need no space.

  bool has_data() const noexcept { return kind == Kind::read || kind == Kind::write; }
  // Fails with an errno value.
  static std::expected<UblkRequest, int> decode(const UblkDescriptor& descriptor, const UblkLimits& limits) noexcept;
};

// The parameters of a device with these limits.
UblkParameters parameters_of(const UblkLimits& limits) noexcept;

// Executes the request. `data` has request.bytes bytes if the request has data, and is valid until the task has ended.
// Returns UblkIoCommand::result.
Task<std::int32_t> execute(nbd::NbdDevice& device, UblkRequest request, MutableBytes data);

}  // namespace hawser::block::ublk
