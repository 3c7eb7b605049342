#include "block/nbd/remote_exports.h"

#include <algorithm>
#include <utility>

#include "block/nbd/remote_device.h"

namespace hawser::block::nbd {
Task<Result<std::shared_ptr<NbdDevice>>> RemoteExports::find(std::string name, bool writable) {
  const Time end = server_.loop().after(std::min<Duration>(server_.outage_max(), first_outage_max));
  Result<std::shared_ptr<RemoteOpening>> opening = co_await server_.open(name, end, {});
  if (!opening) co_return std::unexpected(opening.error());
  const VolumeStatus& status = (*opening)->status;
  ExportInfo info{.name = std::move(name), .size = status.size, .read_only = status.read_only || !writable};
  co_return std::make_shared<RemoteDevice>(server_, std::move(*opening), std::move(info));
}

}  // namespace hawser::block::nbd
