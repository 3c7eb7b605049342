#include "block/nbd/remote_device.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>

#include "block/nbd/protocol.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {
namespace {

// A request that the server refuses because it has no memory is repeated after a pause.
constexpr Duration pause_first = std::chrono::milliseconds(1);
constexpr Duration pause_max = std::chrono::seconds(1);

class RequestCount {
 public:
  explicit RequestCount(unsigned& count) noexcept : count_(count) { ++count_; }
  RequestCount(const RequestCount&) = delete;
  RequestCount& operator=(const RequestCount&) = delete;
  ~RequestCount() { --count_; }

 private:
  unsigned& count_;
};

}  // namespace

RemoteDevice::RemoteDevice(RemoteServer& server, std::shared_ptr<RemoteOpening> opening, ExportInfo info)
    : server_(server),
      info_(std::move(info)),
      preallocated_(opening->status.preallocated),
      medium_(opening->medium),
      opening_(std::move(opening)) {}

void RemoteDevice::abandon() noexcept {
  if (requests_ > 0) server_.leave(opening_);
  abandoned_.request_stop();
}

// Returns the first result of `make` that is neither a refusal nor the end of a connection.
template <class Make>
std::invoke_result_t<Make&, Volume&> RemoteDevice::repeat(Make make) {
  const RequestCount counted(requests_);
  std::optional<Time> end;  // No request is repeated after it. Set when the first one is interrupted.
  for (Duration pause = pause_first;; pause = std::min(2 * pause, pause_max)) {
    const std::shared_ptr<RemoteOpening> opening = opening_;
    if (abandoned_.stop_requested()) co_return store_fail(ECONNABORTED, "the client has gone");
    if (opening->interrupted || server_.has_left(opening->status.name)) {
      if (!end) end = server_.loop().after(server_.outage_max());
      const Result<void> ready = co_await get_ready(opening, *end);
      if (!ready) co_return std::unexpected(ready.error());
      continue;
    }
    auto done = co_await make(opening->volume);
    if (done) co_return done;
    if (done.error().code == ErrorCode::overloaded) {
      if (!co_await server_.loop().sleep(pause, abandoned_.get_token())) co_return done;
      continue;
    }
    if (!is_interrupted(done.error())) co_return done;
    opening->interrupted = true;
    if (!end) end = server_.loop().after(server_.outage_max());
    if (abandoned_.stop_requested() || server_.loop().now() >= *end) {
      if (opening == opening_) server_.leave(opening);
      co_return done;
    }
  }
}

// Ends what may replace the writes of a request that begins.
Task<Result<void>> RemoteDevice::get_ready(std::shared_ptr<RemoteOpening> opening, Time end) {
  if (!opening->interrupted) co_return co_await server_.end_left(opening->status.name, end, abandoned_.get_token());
  Result<void> opened = co_await open_again(opening, end);
  if (!opened) server_.leave(std::move(opening));
  co_return opened;
}

// Replaces an opening that has ended. One request does it for all.
Task<Result<void>> RemoteDevice::open_again(std::shared_ptr<RemoteOpening> ended, Time end) {
  const Result<Permit> alone = co_await opening_again_.acquire(1, abandoned_.get_token());
  if (!alone) co_return std::unexpected(alone.error());
  if (opening_ != ended) co_return Result<void>{};
  if (server_.loop().now() > end) {
    co_return store_fail(EIO, "the server of volume " + info_.name + " cannot be reached");
  }
  Result<std::shared_ptr<RemoteOpening>> opened =
      co_await server_.open(ended->volume.name(), end, abandoned_.get_token());
  if (!opened) co_return std::unexpected(opened.error());
  if ((*opened)->medium != medium_) {
    co_return store_fail(EIO, "the machine of the server of volume " + info_.name +
                                  " has been started again, or it is another one: writes that were not flushed before "
                                  "may be lost");
  }
  opening_ = std::move(*opened);
  co_return Result<void>{};
}

Task<Result<void>> RemoteDevice::read(std::uint64_t offset, MutableBytes into) {
  return repeat([=](Volume& volume) { return volume.read(offset, into); });
}

Task<Result<void>> RemoteDevice::write(std::uint64_t offset, Bytes bytes, bool fua) {
  return repeat([=](Volume& volume) { return volume.write(offset, bytes, fua); });
}

// Succeeds only at a server with the medium of the writes before it: the opening belongs to one start of a server.
Task<Result<void>> RemoteDevice::flush() {
  return repeat([](Volume& volume) { return volume.flush(); });
}

Task<Result<void>> RemoteDevice::discard(std::uint64_t offset, std::uint64_t bytes) {
  return repeat([=](Volume& volume) { return volume.discard(offset, bytes); });
}

Task<Result<void>> RemoteDevice::write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) {
  return repeat([=](Volume& volume) { return volume.write_zeroes(offset, bytes, deallocate, fua); });
}

bool RemoteDevice::fast_zeroes(std::uint64_t bytes, bool deallocate) const noexcept {
  return deallocate && !preallocated_ && bytes >= block_bytes_preferred;
}

Task<Result<std::vector<Extent>>> RemoteDevice::extents(std::uint64_t offset, std::uint64_t bytes,
                                                        std::size_t extents_max) {
  const Result<std::vector<ExtentStatus>> found = co_await repeat(
      [=](Volume& volume) { return volume.extents(offset, bytes, static_cast<std::uint32_t>(extents_max)); });
  if (!found) co_return std::unexpected(found.error());
  std::vector<Extent> extents;
  for (const ExtentStatus& extent : *found) extents.push_back({extent.bytes, state_of(extent.zeros, preallocated_)});
  co_return extents;
}

}  // namespace hawser::block::nbd
