#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <vector>

#include "block/nbd/exports.h"
#include "block/nbd/remote_server.h"
#include "hawser/sync.h"

namespace hawser::block::nbd {

// A volume of a block server. A request that a lost connection or another start of the server has ended is repeated,
// for up to RemoteServer::outage_max(). Before it is repeated, and before any other request, the volume is opened
// again, so that the server executes no request of the lost connection any more (VolumeOpenings). Requests fail if the
// server has another medium than before: writes that had not been flushed may be lost then.
class RemoteDevice final : public NbdDevice {
 public:
  // `server` outlives this.
  RemoteDevice(RemoteServer& server, std::shared_ptr<RemoteOpening> opening, ExportInfo info);

  const ExportInfo& info() const noexcept override { return info_; }
  std::stop_token lost() const noexcept override { return medium_->lost.get_token(); }
  void abandon() noexcept override;
  Task<Result<void>> read(std::uint64_t offset, MutableBytes into) override;
  Task<Result<void>> write(std::uint64_t offset, Bytes bytes, bool fua) override;
  Task<Result<void>> flush() override;
  Task<Result<void>> discard(std::uint64_t offset, std::uint64_t bytes) override;
  Task<Result<void>> write_zeroes(std::uint64_t offset, std::uint64_t bytes, bool deallocate, bool fua) override;
  bool fast_zeroes(std::uint64_t bytes, bool deallocate) const noexcept override;
  Task<Result<std::vector<Extent>>> extents(std::uint64_t offset, std::uint64_t bytes,
                                            std::size_t extents_max) override;

 private:
  template <class Make>
  std::invoke_result_t<Make&, Volume&> repeat(Make make);
  Task<Result<void>> get_ready(std::shared_ptr<RemoteOpening> opening, Time end);
  Task<Result<void>> open_again(std::shared_ptr<RemoteOpening> ended, Time end);

  RemoteServer& server_;
  const ExportInfo info_;
  const bool preallocated_;
  const std::shared_ptr<const RemoteMedium> medium_;
  std::shared_ptr<RemoteOpening> opening_;  // The last one. Its requests in progress keep an earlier one.
  unsigned requests_ = 0;                   // In progress.
  std::stop_source abandoned_;
  Semaphore opening_again_{1};
};

}  // namespace hawser::block::nbd
