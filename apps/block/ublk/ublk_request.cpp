#include "block/ublk/ublk_request.h"

#include <bit>
#include <cerrno>

#include "block/nbd/protocol.h"
#include "block/nbd/reply.h"
#include "block/store/layout.h"

namespace hawser::block::ublk {
namespace {

// Bytes of one discard, or of zeros.
constexpr std::uint64_t clear_bytes_max = std::uint64_t{1} << 30;

Task<Result<void>> run(nbd::NbdDevice& device, UblkRequest request, MutableBytes data) {
  switch (request.kind) {
    case UblkRequest::Kind::read: return device.read(request.offset, data);
    case UblkRequest::Kind::write: return device.write(request.offset, data, request.fua);
    case UblkRequest::Kind::flush: break;
    case UblkRequest::Kind::discard: return device.discard(request.offset, request.bytes);
    case UblkRequest::Kind::write_zeroes:
      return device.write_zeroes(request.offset, request.bytes, request.deallocate, request.fua);
  }
  return device.flush();
}

}  // namespace

std::expected<UblkRequest, int> UblkRequest::decode(const UblkDescriptor& descriptor,
                                                    const UblkLimits& limits) noexcept {
  const std::uint32_t flags = descriptor.operation_and_flags;
  UblkRequest request{.offset = descriptor.first_sector * kernel_sector_bytes,
                      .bytes = std::uint64_t{descriptor.sectors} * kernel_sector_bytes,
                      .fua = (flags & operation::fua_flag) != 0,
                      .deallocate = (flags & operation::no_unmap_flag) == 0};
  switch (flags & operation::mask) {
    case operation::flush: return UblkRequest{};
    case operation::read: request.kind = Kind::read; break;
    case operation::write: request.kind = Kind::write; break;
    case operation::discard: request.kind = Kind::discard; break;
    case operation::write_zeroes: request.kind = Kind::write_zeroes; break;
    default: return std::unexpected(EOPNOTSUPP);
  }
  const std::uint64_t sectors = limits.size / kernel_sector_bytes;
  if (descriptor.first_sector > sectors || descriptor.sectors > sectors - descriptor.first_sector) {
    return std::unexpected(EINVAL);
  }
  if (request.has_data() && request.bytes > limits.io_bytes_max) return std::unexpected(EINVAL);
  if (limits.read_only && request.kind != Kind::read) return std::unexpected(EPERM);
  return request;
}

UblkParameters parameters_of(const UblkLimits& limits) noexcept {
  constexpr auto shift = static_cast<std::uint8_t>(std::countr_zero(block_bytes));
  return {.kinds = parameter::basic | parameter::discard,
          .attributes = parameter::volatile_cache | parameter::fua | (limits.read_only ? parameter::read_only : 0),
          .logical_block_shift = static_cast<std::uint8_t>(std::countr_zero(kernel_sector_bytes)),
          .physical_block_shift = shift,
          .io_preferred_shift = shift,
          .io_min_shift = shift,
          .sectors_per_request_max = limits.io_bytes_max / kernel_sector_bytes,
          .sectors = limits.size / kernel_sector_bytes,
          .discard_granularity = static_cast<std::uint32_t>(block_bytes),
          .discard_sectors_max = static_cast<std::uint32_t>(clear_bytes_max / kernel_sector_bytes),
          .zero_sectors_max = static_cast<std::uint32_t>(clear_bytes_max / kernel_sector_bytes),
          .discard_segments_max = 1};
}

Task<std::int32_t> execute(nbd::NbdDevice& device, UblkRequest request, MutableBytes data) {
  const Result<void> done = co_await run(device, request, data);
  // The errors of NBD have the numbers of Linux.
  if (!done) co_return -static_cast<std::int32_t>(nbd::status_of(done.error()));
  co_return request.has_data() ? static_cast<std::int32_t>(request.bytes) : 0;
}

}  // namespace hawser::block::ublk
