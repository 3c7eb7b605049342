#include "block/service.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "block/random_id.h"
#include "block/store/store_error.h"
#include "hawser/detail/context_access.h"
#include "hawser/detail/loop_access.h"
#include "hawser/server.h"

namespace hawser::block {
namespace {

// The parts of NAME@ID#OPENING.
struct RequestedName {
  explicit RequestedName(std::string_view text) noexcept
      : unique(text.substr(0, text.find(opening_separator))),
        name(unique.substr(0, unique.find(unique_name_separator))) {
    if (unique.size() < text.size()) opening = text.substr(unique.size() + 1);
  }
  std::string_view unique;  // NAME@ID or NAME.
  std::string_view name;
  std::optional<std::string_view> opening = {};
};

// Names are of one volume, and of one identity where it is the same over each transport: a process has one at shared
// memory and none at TCP. Empty: the client has no name.
std::string client_key(std::string_view client, const std::string& volume, const Identity& identity) {
  if (client.empty()) return {};
  const bool proved = identity.kind != Identity::Kind::none && identity.kind != Identity::Kind::unix_peer;
  return (volume + '\n' + (proved ? identity.text() : "") + '\n').append(client);
}

std::unexpected<Error> too_long(std::uint64_t bytes) {
  return store_fail(EINVAL, "a request of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                                std::to_string(request_bytes_max) + " bytes: use several");
}

// As of an offloaded function: connections take turns, and the work does not begin after the end of the call. It may
// end later, so that it keeps its memory.
template <class Work>
auto offload(Context& context, Work work) {
  return detail::LoopAccess::offload_for(context.loop(), &detail::ContextAccess::reply_sink(context).origin(),
                                         context.token(), std::move(work));
}

}  // namespace

VolumeService::VolumeService(VolumeStore& store, std::uint64_t memory_in_flight, VolumeRules rules,
                             std::size_t direct_bytes_max)
    : store_(store),
      rules_(std::move(rules)),
      direct_bytes_max_(direct_bytes_max),
      instance_(random_number()),
      memory_(std::max(memory_in_flight, request_bytes_max)) {}

void VolumeService::attach(Server& server) {
  // Without memory here, a request is received into memory of the library, which bounds it: a request that is too long
  // and is refused by its handler, one for which there is no memory, and one that is copied into its volume at once.
  const auto memory = [this](const IncomingPayload& payload) {
    if (payload.bytes > request_bytes_max || payload.attachment_bytes <= direct_bytes_max_) return Buffer();
    std::optional<Buffer> buffer =
        direct_bytes_max_ > 0 ? memory_.try_acquire_listed(payload.bytes) : memory_.try_acquire(payload.bytes);
    return std::move(buffer).value_or(Buffer());
  };
  if (direct_bytes_max_ > 0) {
    server.register_handler<&VolumeService::write_in_memory>(this, {.receive_into = memory});
  } else {
    server.register_handler<&VolumeService::write>(this, {.offload = true, .receive_into = memory});
  }
  server.register_handler<&VolumeService::read>(this);
  server.register_handler<&VolumeService::flush, &VolumeService::discard, &VolumeService::write_zeroes,
                          &VolumeService::extents, &VolumeService::info, &VolumeService::list, &VolumeService::create,
                          &VolumeService::resize, &VolumeService::remove, &VolumeService::scrub,
                          &VolumeService::unique_name, &VolumeService::open, &VolumeService::open_for>(
      this, {.offload = true});
  server.register_handler<&VolumeService::instance>(this);
}

Result<VolumeService::Found> VolumeService::find(const Context& context, VolumeAccess access, std::string_view name) {
  return find(context.identity(), access, name);
}

Result<VolumeService::Found> VolumeService::find(const Identity& client, VolumeAccess access, std::string_view name) {
  const RequestedName requested(name);
  if (const Result<void> allowed = rules_.check(client, access, requested.name); !allowed) {
    return std::unexpected(allowed.error());
  }
  const auto volume = store_.find(requested.name);
  if (!volume) return std::unexpected(volume.error());
  if (requested.unique.size() != requested.name.size() && requested.unique != (*volume)->unique_name()) {
    return store_fail(ENODEV, "the volume " + (*volume)->name() + " of this request was removed, and another one (" +
                                  (*volume)->unique_name() + ") has its name now: open the volume again");
  }
  if (!requested.opening) return Found{*volume, {}};
  std::optional<VolumeOpenings::Use> use = openings_.use(*requested.opening);
  if (!use) {
    return store_fail(ESTALE, "the opening of volume " + (*volume)->name() +
                                  " that this request names has ended: open the volume again");
  }
  return Found{*volume, std::move(*use)};
}

Result<OpenedVolume> VolumeService::open(Context& context, std::string_view name) {
  return open_for(context, name, {}, {});
}

Result<OpenedVolume> VolumeService::open_for(Context& context, std::string_view name, std::string_view client,
                                             std::string_view process) {
  if (std::max(client.size(), process.size()) > client_name_bytes_max) {
    return store_fail(EINVAL, "the name of a client of " + std::to_string(client.size()) +
                                  " bytes, or the id of its process, exceeds the limit of " +
                                  std::to_string(client_name_bytes_max) + " bytes");
  }
  const RequestedName requested(name);
  const auto found = find(context, VolumeAccess::read, requested.unique);
  if (!found) return std::unexpected(found.error());
  Result<VolumeStatus> status = status_of(context, *found->volume);
  if (!status) return std::unexpected(status.error());
  // A client that cannot write has nothing that may be late, and ends nothing of others.
  if (!rules_.allow(context.identity(), VolumeAccess::write, found->volume->name())) client = {};
  const Result<std::string> opening =
      openings_.begin({.name = client_key(client, found->volume->unique_name(), context.identity()),
                       .process = std::string(client.empty() ? std::string_view() : process)});
  if (!opening) return std::unexpected(opening.error());
  // Behind begin(): while the client has an opening, its earlier processes stay known.
  if (requested.opening) openings_.end(*requested.opening);
  return OpenedVolume{.name = found->volume->unique_name() + opening_separator + *opening,
                      .medium = store_.medium(),
                      .status = std::move(*status)};
}

Result<std::string> VolumeService::unique_name(Context& context, std::string_view name) {
  const auto volume = find(context, VolumeAccess::read, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->unique_name();
}

Task<Result<std::string_view>> VolumeService::read(Context& context, std::string_view name, std::uint64_t offset,
                                                   std::uint64_t bytes) {
  if (bytes > request_bytes_max) co_return too_long(bytes);
  // A read does not keep its opening in use. While it waits for memory, an end of the opening would block a thread, and
  // the read may need this thread.
  std::shared_ptr<StoredVolume> volume;
  {
    Result<Found> found = find(context, VolumeAccess::read, name);
    if (!found) co_return std::unexpected(found.error());
    volume = std::move(found->volume);
  }
  const bool direct = direct_bytes_max_ > 0 && bytes <= direct_bytes_max_;
  std::optional<Buffer> memory = direct ? memory_.try_acquire_pooled(bytes) : memory_.try_acquire(bytes);
  if (!memory) {
    Result<Buffer> acquired = co_await memory_.acquire(context.loop(), bytes, context.token());
    if (!acquired) co_return std::unexpected(acquired.error());
    memory = std::move(*acquired);
  }
  const MutableBytes into = memory->mutable_bytes();
  const std::string_view text = memory->text();
  std::optional<Result<void>> done;
  if (direct) done = volume->try_read(offset, into);
  if (!done) {
    const Result<Result<void>> read = co_await offload(
        context, [from = std::move(volume), offset, into, kept = *memory] { return from->read(offset, into); });
    done = read ? *read : std::unexpected(read.error());
  }
  if (!*done) co_return std::unexpected(done->error());
  context.keep_until_sent(std::move(*memory));
  co_return text;
}

Result<void> VolumeService::write(Context& context, std::string_view name, std::uint64_t offset, bool fua) {
  const Bytes bytes = context.attachment();
  if (bytes.size() > request_bytes_max) return too_long(bytes.size());
  const auto volume = find(context, VolumeAccess::write, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->write(offset, bytes, fua);
}

Task<Result<void>> VolumeService::write_in_memory(Context& context, std::string_view name, std::uint64_t offset,
                                                  bool fua) {
  const Bytes bytes = context.attachment();
  if (bytes.size() > request_bytes_max) co_return too_long(bytes.size());
  if (bytes.size() <= direct_bytes_max_) {
    const Result<Found> found = find(context, VolumeAccess::write, name);
    if (!found) co_return std::unexpected(found.error());
    if (const std::optional<Result<void>> done = found->volume->try_write(offset, bytes, fua)) co_return *done;
  }
  // The opening is in use from the begin of the work on.
  std::shared_ptr<const void> kept = memory_.owner_of(bytes.data());
  Bytes from = bytes;
  if (kept == nullptr) {
    // Received into memory of the library, which counts it as long as this waits.
    Result<Buffer> memory = co_await memory_.acquire(context.loop(), bytes.size(), context.token());
    if (!memory) co_return std::unexpected(memory.error());
    std::ranges::copy(bytes, memory->mutable_bytes().begin());
    from = memory->bytes();
    kept = std::make_shared<Buffer>(std::move(*memory));
  }
  const Result<Result<void>> written = co_await offload(
      context,
      [this, client = context.identity(), volume = std::string(name), offset, from, kept, fua]() -> Result<void> {
        const Result<Found> found = find(client, VolumeAccess::write, volume);
        if (!found) return std::unexpected(found.error());
        return found->volume->write(offset, from, fua);
      });
  co_return written ? *written : std::unexpected(written.error());
}

Result<void> VolumeService::flush(Context& context, std::string_view name) {
  const auto volume = find(context, VolumeAccess::read, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->flush();
}

Result<void> VolumeService::discard(Context& context, std::string_view name, std::uint64_t offset,
                                    std::uint64_t bytes) {
  const auto volume = find(context, VolumeAccess::write, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->discard(offset, bytes);
}

Result<void> VolumeService::write_zeroes(Context& context, std::string_view name, std::uint64_t offset,
                                         std::uint64_t bytes, bool deallocate, bool fua) {
  const auto volume = find(context, VolumeAccess::write, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->write_zeroes(offset, bytes, deallocate, fua);
}

Result<std::vector<ExtentStatus>> VolumeService::extents(Context& context, std::string_view name, std::uint64_t offset,
                                                         std::uint64_t bytes, std::uint32_t count_max) {
  const auto volume = find(context, VolumeAccess::read, name);
  if (!volume) return std::unexpected(volume.error());
  return list_extents(*volume->volume, offset, bytes, count_max);
}

Result<VolumeStatus> VolumeService::status_of(const Context& context, const StoredVolume& volume) const {
  const Result<VolumeInfo> info = volume.info();
  if (!info) return std::unexpected(info.error());
  return VolumeStatus{
      .name = volume.name(),
      .size = info->size,
      .allocated_bytes = info->allocated_bytes,
      .marked_regions = info->marked_regions,
      .recovered_blocks = info->recovered_blocks,
      .mismatches = info->mismatches,
      .known_damaged = info->known_damaged,
      .preallocated = info->preallocated,
      .read_only = info->read_only || !rules_.allow(context.identity(), VolumeAccess::write, volume.name()),
      .error = {},
      .warning = info->warning};
}

Result<VolumeStatus> VolumeService::info(Context& context, std::string_view name) {
  const auto found = find(context, VolumeAccess::read, name);
  if (!found) return std::unexpected(found.error());
  return status_of(context, *found->volume);
}

std::vector<VolumeStatus> VolumeService::list(Context& context) {
  std::vector<VolumeStatus> volumes;
  for (const std::string& name : store_.names()) {
    if (!rules_.allow(context.identity(), VolumeAccess::read, name)) continue;
    Result<VolumeStatus> status = info(context, name);
    if (!status) status = VolumeStatus{.name = name, .error = status.error().text};
    volumes.push_back(std::move(*status));
  }
  return volumes;
}

Result<void> VolumeService::create(Context& context, std::string_view name, std::uint64_t size, bool preallocate) {
  if (Result<void> allowed = rules_.check(context.identity(), VolumeAccess::manage, name); !allowed) return allowed;
  const auto made = store_.create(std::string(name), size, preallocate);
  if (!made) return std::unexpected(made.error());
  return {};
}

Result<void> VolumeService::resize(Context& context, std::string_view name, std::uint64_t size) {
  const auto volume = find(context, VolumeAccess::manage, name);
  if (!volume) return std::unexpected(volume.error());
  return (*volume)->resize(size);
}

Result<void> VolumeService::remove(Context& context, std::string_view name) {
  if (Result<void> allowed = rules_.check(context.identity(), VolumeAccess::manage, name); !allowed) return allowed;
  return store_.remove(std::string(name));
}

Result<ScrubStatus> VolumeService::scrub(Context& context, std::string_view name, std::uint64_t offset,
                                         std::uint64_t bytes) {
  if (bytes > scrub_bytes_max) {
    return store_fail(EINVAL, "a scrub of " + std::to_string(bytes) + " bytes exceeds the limit of " +
                                  std::to_string(scrub_bytes_max) + " bytes: use several");
  }
  const auto volume = find(context, VolumeAccess::manage, name);
  if (!volume) return std::unexpected(volume.error());
  const Result<ScrubReport> report = (*volume)->scrub(offset, bytes);
  if (!report) return std::unexpected(report.error());
  ScrubStatus status{.size = (*volume)->size(), .blocks = report->blocks, .damaged = report->damaged, .listed = {}};
  for (const DamagedBlock& block : report->listed) status.listed.push_back(block.block);
  return status;
}

}  // namespace hawser::block
