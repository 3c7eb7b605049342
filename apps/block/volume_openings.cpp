#include "block/volume_openings.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "block/random_id.h"
#include "block/store/store_error.h"

namespace hawser::block {

VolumeOpenings::Use::Use(VolumeOpenings& openings, std::shared_ptr<Opening> opening) noexcept
    : openings_(&openings), opening_(std::move(opening)) {}

VolumeOpenings::Use::Use(Use&& other) noexcept : openings_(other.openings_), opening_(std::move(other.opening_)) {}

VolumeOpenings::Use::~Use() {
  if (!opening_) return;
  const std::lock_guard lock(openings_->mutex_);
  if (--opening_->requests == 0) openings_->unused_.notify_all();
}

void VolumeOpenings::remove(Map::iterator found) {
  used_.erase(found->second->place);
  openings_.erase(found);
}

Result<std::string> VolumeOpenings::begin() {
  const std::lock_guard lock(mutex_);
  if (openings_.size() >= openings_max_) {
    const auto idle =
        std::ranges::find_if(used_, [&](const std::string& id) { return openings_.at(id)->requests == 0; });
    if (idle == used_.end()) {
      return store_fail(EBUSY, "all " + std::to_string(openings_max_) +
                                   " openings of volumes have requests in progress: open the volume later");
    }
    remove(openings_.find(*idle));
  }
  std::string id = random_id();
  Ids own{id};
  openings_.emplace(id, std::make_shared<Opening>(Opening{.place = own.begin()}));
  used_.splice(used_.end(), own);
  return id;
}

void VolumeOpenings::end(std::string_view id) {
  std::unique_lock lock(mutex_);
  const auto found = openings_.find(id);
  if (found == openings_.end()) return;
  const std::shared_ptr<Opening> opening = found->second;
  opening->ended = true;
  unused_.wait(lock, [&] { return opening->requests == 0; });
  // Another call may have removed it meanwhile.
  if (const auto left = openings_.find(id); left != openings_.end()) remove(left);
}

std::optional<VolumeOpenings::Use> VolumeOpenings::use(std::string_view id) {
  const std::lock_guard lock(mutex_);
  const auto found = openings_.find(id);
  if (found == openings_.end() || found->second->ended) return std::nullopt;
  ++found->second->requests;
  used_.splice(used_.end(), used_, found->second->place);
  return Use(*this, found->second);
}

}  // namespace hawser::block
