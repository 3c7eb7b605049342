#include "block/nbd/remote_exports.h"

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <utility>

#include "block/nbd/protocol.h"
#include "block/service.h"
#include "block/store/store_error.h"
#include "block/volume.h"

namespace hawser::block::nbd {
namespace {

// A request that the server refuses because it has no memory is repeated after a pause.
constexpr Duration pause_first = std::chrono::milliseconds(1);
constexpr Duration pause_max = std::chrono::seconds(1);

class RemoteDevice final : public NbdDevice {
 public:
  // `unique_name`: of find_unique_name().
  RemoteDevice(Loop& loop, Client& client, ExportInfo info, std::string unique_name,
               std::shared_ptr<const ServerRun> run, bool preallocated)
      : loop_(loop),
        client_(client),
        info_(std::move(info)),
        run_(std::move(run)),
        preallocated_(preallocated),
        volume_(client, std::move(unique_name)) {}

  const ExportInfo& info() const noexcept override { return info_; }
  std::stop_token lost() const noexcept override { return run_->lost.get_token(); }
  void abandon() noexcept override { abandoned_.request_stop(); }

  Task<Result<void>> read(std::uint64_t offset, MutableBytes into) override {
    return repeat([=, this] { return volume_.read(offset, into); });
  }
  Task<Result<void>> write(std::uint64_t offset, Bytes bytes, bool fua) override {
    return repeat([=, this] { return volume_.write(offset, bytes, fua); });
  }
  Task<Result<void>> flush() override {
    Result<void> flushed = co_await repeat([this] { return volume_.flush(); });
    if (!flushed) co_return flushed;
    // Asked after the flush, so that it is known who has flushed.
    const Result<std::uint64_t> instance = co_await repeat(
        [this]() -> Task<Result<std::uint64_t>> { co_return co_await client_.call<&VolumeService::instance>(); });
    if (!instance) co_return std::unexpected(instance.error());
    if (*instance == run_->instance) co_return Result<void>{};
    co_return store_fail(EIO, "the server of volume " + info_.name +
                                  " has been restarted: writes that were not flushed before may be lost");
  }
  Task<Result<void>> discard(std::uint64_t offset, std::uint64_t bytes) override {
    return repeat([=, this] { return volume_.discard(offset, bytes); });
  }
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) override {
    return repeat([=, this] { return volume_.write_zeroes(offset, bytes, deallocate, fua); });
  }
  bool fast_zeroes(std::uint64_t bytes, bool deallocate) const noexcept override {
    return deallocate && !preallocated_ && bytes >= block_bytes_preferred;
  }
  Task<Result<std::vector<Extent>>> extents(std::uint64_t offset, std::uint64_t bytes, std::size_t count_max) override {
    const Result<std::vector<ExtentStatus>> found =
        co_await repeat([=, this] { return volume_.extents(offset, bytes, static_cast<std::uint32_t>(count_max)); });
    if (!found) co_return std::unexpected(found.error());
    std::vector<Extent> extents;
    for (const ExtentStatus& extent : *found) extents.push_back({extent.bytes, state_of(extent.zeros, preallocated_)});
    co_return extents;
  }

 private:
  // Makes tasks, and returns the result of the first one that was not refused.
  template <class Make, class Value = typename std::invoke_result_t<Make&>::value_type>
  Task<Value> repeat(Make make) {
    for (Duration pause = pause_first;; pause = std::min(2 * pause, pause_max)) {
      Value done = co_await make();
      if (done || done.error().code != ErrorCode::overloaded) co_return done;
      if (!co_await loop_.sleep(pause, abandoned_.get_token())) co_return done;
    }
  }

  Loop& loop_;
  Client& client_;
  const ExportInfo info_;
  const std::shared_ptr<const ServerRun> run_;
  const bool preallocated_;
  std::stop_source abandoned_;
  Volume volume_;
};

ClientOptions without_deadline(ClientOptions options) {
  // A write whose call was given up might be executed after later ones. Pings find a server that is gone.
  options.call_timeout = forever;
  return options;
}

}  // namespace

RemoteExports::RemoteExports(Loop& loop, std::string address, ClientOptions options, VolumeRules rules)
    : Exports(std::move(rules)),
      address_(std::move(address)),
      loop_(loop),
      client_(loop, without_deadline(std::move(options))) {}

RemoteExports::~RemoteExports() = default;

Task<Result<std::vector<std::string>>> RemoteExports::list() {
  if (const Result<void> connected = co_await client_.connect(address_); !connected) {
    co_return std::unexpected(connected.error());
  }
  const Result<std::vector<VolumeStatus>> volumes = co_await client_.call<&VolumeService::list>();
  if (!volumes) co_return std::unexpected(volumes.error());
  std::vector<std::string> names;
  for (const VolumeStatus& volume : *volumes) names.push_back(volume.name);
  co_return names;
}

// Asked before the other calls of find(): a device is lost if the server has been restarted in between.
Task<Result<std::shared_ptr<const ServerRun>>> RemoteExports::find_run() {
  const Result<std::uint64_t> instance = co_await client_.call<&VolumeService::instance>();
  if (!instance) co_return std::unexpected(instance.error());
  if (!run_ || run_->instance != *instance) {
    const std::shared_ptr<ServerRun> before = std::exchange(run_, std::make_shared<ServerRun>(*instance));
    if (before) before->lost.request_stop();
  }
  co_return run_;
}

Task<Result<std::shared_ptr<NbdDevice>>> RemoteExports::find(std::string name, bool writable) {
  if (const Result<void> connected = co_await client_.connect(address_); !connected) {
    co_return std::unexpected(connected.error());
  }
  Result<std::shared_ptr<const ServerRun>> run = co_await find_run();
  if (!run) co_return std::unexpected(run.error());
  Result<std::string> unique_name = co_await find_unique_name(client_, name);
  if (!unique_name) co_return std::unexpected(unique_name.error());
  const Result<VolumeStatus> status = co_await client_.call<&VolumeService::info>(*unique_name);
  if (!status) co_return std::unexpected(status.error());
  ExportInfo info{.name = std::move(name), .size = status->size, .read_only = status->read_only || !writable};
  co_return std::make_shared<RemoteDevice>(loop_, client_, std::move(info), std::move(*unique_name), std::move(*run),
                                           status->preallocated);
}

}  // namespace hawser::block::nbd
