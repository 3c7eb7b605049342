#include "block/service.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "block/store/aligned_buffer.h"
#include "block/store/store_error.h"
#include "hawser/server.h"

namespace hawser::block {
namespace {

// Memory of reads and writes in progress. Replies that a client does not take keep theirs, and writes that wait for a
// thread.
constexpr std::uint64_t held_bytes_max = std::uint64_t{1} << 30;
std::atomic<std::uint64_t> held_bytes = 0;

// A part of held_bytes_max.
struct HeldBytes {
  explicit HeldBytes(std::size_t wanted) noexcept
      : bytes(wanted), allowed(held_bytes.fetch_add(wanted) + wanted <= held_bytes_max) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() { held_bytes -= bytes; }
  const std::size_t bytes;
  const bool allowed;
};

struct BytesInFlight {
  explicit BytesInFlight(std::size_t bytes) : held(bytes), memory(held.allowed ? bytes : 0) {}
  const HeldBytes held;
  AlignedBuffer memory;
};

// Memory at an address that O_DIRECT accepts. Nothing if held_bytes_max is reached.
std::optional<Buffer> aligned_memory(std::size_t bytes) {
  auto held = std::make_shared<BytesInFlight>(bytes);
  if (!held->held.allowed) return std::nullopt;
  const Bytes view = held->memory.bytes();
  return Buffer::of_foreign(view, [memory = std::move(held)] {});
}

Buffer memory_of_request(const IncomingPayload& payload) {
  // A longer request is received into memory of the library, and is refused by its handler. The library bounds its own
  // memory, and refuses what exceeds it.
  if (payload.bytes > request_bytes_max) return Buffer();
  return aligned_memory(payload.bytes).value_or(Buffer());
}

std::unexpected<Error> too_long(std::uint64_t bytes) {
  return store_fail(EINVAL, "a request of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                                std::to_string(request_bytes_max) + " bytes: use several");
}

}  // namespace

void VolumeService::attach(Server& server) {
  server.register_handler<&VolumeService::write>(this, {.offload = true, .receive_into = memory_of_request});
  server
      .register_handler<&VolumeService::read, &VolumeService::flush, &VolumeService::discard,
                        &VolumeService::write_zeroes, &VolumeService::info, &VolumeService::list,
                        &VolumeService::create, &VolumeService::resize, &VolumeService::remove, &VolumeService::scrub>(
          this, {.offload = true});
}

Result<std::string_view> VolumeService::read(Context& context, std::string_view name, std::uint64_t offset,
                                             std::uint64_t bytes) {
  if (bytes > request_bytes_max) return too_long(bytes);
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  std::optional<Buffer> memory = aligned_memory(bytes);
  if (!memory) {
    return fail(ErrorCode::overloaded, "reads and writes in progress use all of the server's memory for them, " +
                                           std::to_string(held_bytes_max) + " bytes: repeat it later");
  }
  if (Result<void> read = (*volume)->read(offset, memory->mutable_bytes()); !read) {
    return std::unexpected(read.error());
  }
  const std::string_view text = memory->text();
  context.keep_until_sent(std::move(*memory));
  return text;
}

Result<void> VolumeService::write(Context& context, std::string_view name, std::uint64_t offset, bool fua) {
  const Bytes bytes = context.attachment();
  if (bytes.size() > request_bytes_max) return too_long(bytes.size());
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->write(offset, bytes, fua);
}

Result<void> VolumeService::flush(std::string_view name) {
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->flush();
}

Result<void> VolumeService::discard(std::string_view name, std::uint64_t offset, std::uint64_t bytes) {
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->discard(offset, bytes);
}

Result<void> VolumeService::write_zeroes(std::string_view name, std::uint64_t offset, std::uint64_t bytes,
                                         bool deallocate, bool fua) {
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->write_zeroes(offset, bytes, deallocate, fua);
}

Result<VolumeStatus> VolumeService::info(std::string_view name) {
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  const Result<VolumeInfo> info = (*volume)->info();
  if (!info) return std::unexpected(info.error());
  return VolumeStatus{.name = (*volume)->name(),
                      .size = info->size,
                      .allocated_bytes = info->allocated_bytes,
                      .marked_regions = info->marked_regions,
                      .recovered_blocks = info->recovered_blocks,
                      .mismatches = info->mismatches,
                      .preallocated = info->preallocated,
                      .read_only = info->read_only,
                      .error = {}};
}

std::vector<VolumeStatus> VolumeService::list() {
  std::vector<VolumeStatus> volumes;
  for (const std::string& name : store_.names()) {
    Result<VolumeStatus> status = info(name);
    if (!status) status = VolumeStatus{.name = name, .error = status.error().text};
    volumes.push_back(std::move(*status));
  }
  return volumes;
}

Result<void> VolumeService::create(std::string_view name, std::uint64_t size, bool preallocate) {
  const auto made = store_.create(std::string(name), size, preallocate);
  if (!made) return std::unexpected(made.error());
  return {};
}

Result<void> VolumeService::resize(std::string_view name, std::uint64_t size) {
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->resize(size);
}

Result<void> VolumeService::remove(std::string_view name) { return store_.remove(std::string(name)); }

Result<ScrubStatus> VolumeService::scrub(std::string_view name, std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > scrub_bytes_max) {
    return store_fail(EINVAL, "a scrub of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                                  std::to_string(scrub_bytes_max) + " bytes: use several");
  }
  const auto volume = store_.find(std::string(name));
  if (!volume) return std::unexpected(volume.error());
  const Result<ScrubReport> report = (*volume)->scrub(offset, bytes);
  if (!report) return std::unexpected(report.error());
  ScrubStatus status{.size = (*volume)->size(), .blocks = report->blocks, .damaged = report->damaged, .listed = {}};
  for (const DamagedBlock& block : report->listed) status.listed.push_back(block.block);
  return status;
}

}  // namespace hawser::block
