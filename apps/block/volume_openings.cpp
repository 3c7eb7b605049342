#include "block/volume_openings.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "block/random_id.h"
#include "block/store/store_error.h"

namespace hawser::block {
namespace {

std::unexpected<Error> replaced() {
  return store_fail(
      ESHUTDOWN,
      "a later process with the name of this client has opened the volume: processes at the same time need "
      "different names (--client)");
}

}  // namespace

VolumeOpenings::Use::Use(VolumeOpenings& openings, std::shared_ptr<Opening> opening) noexcept
    : openings_(&openings), opening_(std::move(opening)) {}

VolumeOpenings::Use::Use(Use&& other) noexcept : openings_(other.openings_), opening_(std::move(other.opening_)) {}

VolumeOpenings::Use::~Use() {
  if (!opening_) return;
  const std::lock_guard lock(openings_->mutex_);
  if (--opening_->requests == 0) openings_->unused_.notify_all();
}

void VolumeOpenings::remove(Map::iterator found) {
  const auto client = clients_.find(found->second->client.name);
  if (client != clients_.end()) {
    client->second.ids.erase(found->first);
    if (client->second.ids.empty()) clients_.erase(client);
  }
  used_.erase(found->second->place);
  openings_.erase(found);
}

Result<std::string> VolumeOpenings::begin(const OpeningClient& client) {
  std::unique_lock lock(mutex_);
  if (openings_.size() >= openings_max_ && find_idle() == used_.end()) {
    return store_fail(EBUSY, "all " + std::to_string(openings_max_) +
                                 " openings of volumes have requests in progress: open the volume later");
  }
  if (Result<void> entered = enter(client); !entered) return std::unexpected(entered.error());
  std::string id = random_id();
  Ids own{id};
  const auto opening = std::make_shared<Opening>(Opening{.place = own.begin(), .client = client});
  openings_.emplace(id, opening);
  used_.splice(used_.end(), own);
  if (client.name.empty()) {
    evict(id);
    return id;
  }
  // Behind the opening, with whose end a client is removed also if no memory is left for the id.
  const KnownClient fresh{.process = client.process, .earlier = {}, .ids = {}};
  clients_.try_emplace(client.name, fresh).first->second.ids.insert(id);
  // Behind the new opening: the idle one may be the only one of this client, whose earlier processes stay known.
  evict(id);
  end_earlier(lock, client);
  if (opening->ended) return replaced();
  return id;
}

// The one that was used the least recently.
VolumeOpenings::Ids::iterator VolumeOpenings::find_idle() {
  return std::ranges::find_if(used_, [&](const std::string& id) { return openings_.at(id)->requests == 0; });
}

// Ends idle openings other than `fresh`, the last one, until there are not too many.
void VolumeOpenings::evict(const std::string& fresh) {
  while (openings_.size() > openings_max_) {
    const std::string& idle = *find_idle();
    if (idle == fresh) return;
    remove(openings_.find(idle));
  }
}

// Makes the process the last one of its client.
Result<void> VolumeOpenings::enter(const OpeningClient& client) {
  const auto found = clients_.find(client.name);
  if (found == clients_.end() || found->second.process == client.process) return {};
  KnownClient& known = found->second;
  if (std::ranges::find(known.earlier, client.process) != known.earlier.end()) return replaced();
  std::string process = client.process;
  known.earlier.push_back(std::move(known.process));
  known.process = std::move(process);
  if (known.earlier.size() > earlier_processes_max) known.earlier.pop_front();
  return {};
}

// The client has an opening of the process, so that it stays known meanwhile.
void VolumeOpenings::end_earlier(std::unique_lock<std::mutex>& lock, const OpeningClient& client) {
  std::vector<std::string> earlier;
  for (const std::string& id : clients_.at(client.name).ids) {
    const auto found = openings_.find(id);
    if (found == openings_.end() || found->second->client.process == client.process) continue;
    found->second->ended = true;
    earlier.push_back(id);
  }
  for (const std::string& id : earlier) end_locked(lock, id);
}

void VolumeOpenings::end(std::string_view id) {
  std::unique_lock lock(mutex_);
  end_locked(lock, id);
}

void VolumeOpenings::end_locked(std::unique_lock<std::mutex>& lock, std::string_view id) {
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
