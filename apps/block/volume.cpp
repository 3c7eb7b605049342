#include "block/volume.h"

#include <algorithm>
#include <utility>

#include "block/service.h"

namespace hawser::block {

Task<Result<std::string>> find_unique_name(Client& client, std::string name) {
  const CallOptions options{.idempotent = true};
  Result<std::string> found = co_await client.call<&VolumeService::unique_name>(options, name);
  if (!found && found.error().code == ErrorCode::unknown_method) co_return name;
  co_return found;
}

Volume::Volume(Client& client, std::string name, VolumeOptions options)
    : client_(client),
      name_(std::move(name)),
      permits_(std::max<std::size_t>(options.bytes_in_flight_max / permit_bytes, 1)),
      in_flight_(permits_) {}

// A request that is larger than the limit has all permits, so that it is alone and does not wait for ever.
std::size_t Volume::permits_of(std::size_t bytes) const noexcept {
  return std::clamp<std::size_t>((bytes + permit_bytes - 1) / permit_bytes, 1, permits_);
}

Task<Result<std::uint64_t>> Volume::size() {
  if (unique_name_.empty()) {
    Result<std::string> found = co_await find_unique_name(client_, name_);
    if (!found) co_return std::unexpected(found.error());
    if (unique_name_.empty()) unique_name_ = std::move(*found);  // Another call may have set it since.
  }
  const Result<VolumeStatus> status = co_await client_.call<&VolumeService::info>(target());
  if (!status) co_return std::unexpected(status.error());
  co_return status->size;
}

Task<Result<void>> Volume::read(std::uint64_t offset, MutableBytes into) {
  const CallOptions options{.idempotent = true};
  while (!into.empty()) {
    const MutableBytes part = into.first(std::min<std::size_t>(into.size(), request_bytes_max));
    const Permit permit = co_await in_flight_.acquire(permits_of(part.size()));
    const Result<Reply<std::string_view>> reply =
        co_await client_.call<&VolumeService::read>(options, target(), offset, std::uint64_t{part.size()}).into(part);
    if (!reply) co_return std::unexpected(reply.error());
    if (reply->value().size() != part.size()) {
      co_return fail(ErrorCode::protocol_error, "the server sent " + std::to_string(reply->value().size()) +
                                                    " bytes instead of " + std::to_string(part.size()));
    }
    into = into.subspan(part.size());
    offset += part.size();
  }
  co_return Result<void>{};
}

Task<Result<void>> Volume::write(std::uint64_t offset, Bytes bytes, bool fua) {
  while (!bytes.empty()) {
    const Bytes part = bytes.first(std::min<std::size_t>(bytes.size(), request_bytes_max));
    const Permit permit = co_await in_flight_.acquire(permits_of(part.size()));
    const CallOptions options{.attachment = part};
    Result<void> written = co_await client_.call<&VolumeService::write>(options, target(), offset, fua);
    if (!written) co_return written;
    bytes = bytes.subspan(part.size());
    offset += part.size();
  }
  co_return Result<void>{};
}

Task<Result<void>> Volume::flush() { co_return co_await client_.call<&VolumeService::flush>(target()); }

Task<Result<void>> Volume::discard(std::uint64_t offset, std::uint64_t bytes) {
  co_return co_await client_.call<&VolumeService::discard>(target(), offset, bytes);
}

Task<Result<void>> Volume::write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) {
  co_return co_await client_.call<&VolumeService::write_zeroes>(target(), offset, bytes, deallocate, fua);
}

Task<Result<std::vector<ExtentStatus>>> Volume::extents(std::uint64_t offset, std::uint64_t bytes,
                                                        std::uint32_t count_max) {
  const CallOptions options{.idempotent = true};
  co_return co_await client_.call<&VolumeService::extents>(options, target(), offset, bytes, count_max);
}

}  // namespace hawser::block
