#include "block/nbd/stored_exports.h"

#include <cerrno>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "block/extent_list.h"
#include "block/nbd/protocol.h"
#include "block/store/store_error.h"

namespace hawser::block::nbd {
namespace {

class StoredDevice final : public NbdDevice {
 public:
  StoredDevice(Loop& loop, std::shared_ptr<StoredVolume> volume, const StoredExportsOptions& options, ExportInfo info,
               bool preallocated)
      : loop_(loop),
        volume_(std::move(volume)),
        direct_bytes_max_(options.direct_bytes_max),
        info_(std::move(info)),
        preallocated_(preallocated) {}

  const ExportInfo& info() const noexcept override { return info_; }
  void abandon() noexcept override { abandoned_.request_stop(); }

  Task<Result<void>> read(std::uint64_t offset, MutableBytes into) override {
    if (is_direct(into.size())) {
      if (const std::optional<Result<void>> done = volume_->try_read(offset, into)) co_return *done;
    }
    co_return co_await offload([=](StoredVolume& volume, const std::stop_token&) { return volume.read(offset, into); });
  }
  Task<Result<void>> write(std::uint64_t offset, Bytes bytes, bool fua) override {
    if (is_direct(bytes.size())) {
      if (const std::optional<Result<void>> done = volume_->try_write(offset, bytes, fua)) co_return *done;
    }
    co_return co_await offload([=](StoredVolume& volume, const std::stop_token& abandoned) {
      return volume.write(offset, bytes, fua, abandoned);
    });
  }
  std::size_t direct_bytes_max() const noexcept override { return direct_bytes_max_; }
  std::optional<Result<void>> read_now(std::uint64_t offset, MutableBytes into) override {
    return volume_->try_read(offset, into);
  }
  std::optional<Result<void>> write_now(std::uint64_t offset, Bytes bytes, bool fua) override {
    return volume_->try_write(offset, bytes, fua);
  }
  Task<Result<void>> flush() override {
    if (direct_bytes_max_ > 0) {
      if (const std::optional<Result<void>> done = volume_->try_flush()) co_return *done;
    }
    co_return co_await offload([](StoredVolume& volume, const std::stop_token&) { return volume.flush(); });
  }
  Task<Result<void>> discard(std::uint64_t offset, std::uint64_t bytes) override {
    return offload([=](StoredVolume& volume, const std::stop_token& abandoned) {
      return volume.discard(offset, bytes, abandoned);
    });
  }
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) override {
    return offload([=](StoredVolume& volume, const std::stop_token& abandoned) {
      return volume.write_zeroes(offset, bytes, deallocate, fua, abandoned);
    });
  }
  bool fast_zeroes(std::uint64_t bytes, bool deallocate) const noexcept override {
    return deallocate && !preallocated_ && bytes >= block_bytes;
  }
  Task<Result<std::vector<Extent>>> extents(std::uint64_t offset, std::uint64_t bytes, std::size_t count_max) override {
    const Result<std::vector<ExtentStatus>> found = co_await offload(
        [=](StoredVolume& volume, const std::stop_token&) { return list_extents(volume, offset, bytes, count_max); });
    if (!found) co_return std::unexpected(found.error());
    std::vector<Extent> extents;
    for (const ExtentStatus& extent : *found) extents.push_back({extent.bytes, state_of(extent.zeros, preallocated_)});
    co_return extents;
  }

 private:
  bool is_direct(std::uint64_t bytes) const noexcept { return bytes <= direct_bytes_max_ && direct_bytes_max_ > 0; }

  // The result of `work`, which blocks. `work` asks the token again when it has its range.
  template <class Work>
  Task<std::invoke_result_t<Work&, StoredVolume&, const std::stop_token&>> offload(Work work) {
    using Value = std::invoke_result_t<Work&, StoredVolume&, const std::stop_token&>;
    auto done = co_await loop_.offload(
        [work = std::move(work), volume = volume_, abandoned = abandoned_.get_token()]() mutable -> Value {
          if (abandoned.stop_requested()) return store_fail(ECANCELED, "the client has gone");
          return work(*volume, abandoned);
        });
    if (!done) co_return std::unexpected(done.error());
    co_return std::move(*done);
  }

  Loop& loop_;
  const std::shared_ptr<StoredVolume> volume_;
  const std::size_t direct_bytes_max_;
  const ExportInfo info_;
  const bool preallocated_;
  std::stop_source abandoned_;
};

}  // namespace

Task<Result<std::shared_ptr<NbdDevice>>> StoredExports::find(std::string name, bool writable) {
  const Result<std::shared_ptr<StoredVolume>> volume = store_.find(name);
  if (!volume) co_return std::unexpected(volume.error());
  // Blocks for a moment: it asks for the status of a file.
  const Result<VolumeInfo> status = (*volume)->info();
  if (!status) co_return std::unexpected(status.error());
  const bool read_only = status->read_only || !writable;
  ExportInfo info{.name = std::move(name), .size = status->size, .read_only = read_only};
  co_return std::make_shared<StoredDevice>(loop_, *volume, options_, std::move(info), status->preallocated);
}

}  // namespace hawser::block::nbd
