#include "cluster/list_check.h"

#include <algorithm>
#include <bit>

#include "cluster/endpoint_text.h"
#include "cluster/xxh64.h"

namespace hawser::cluster {

ListCheck::ListCheck(std::shared_ptr<const std::vector<Endpoint>> list, std::uint64_t seed)
    : list_(std::move(list)), seed_(seed), places_(std::bit_ceil(2 * list_->size() + 1)) {
  good_.reserve(list_->size());
}

bool ListCheck::note_address(const std::string& address, std::size_t index) {
  std::size_t place = xxh64(address, seed_) & (places_.size() - 1);
  for (; places_[place] != 0; place = (place + 1) & (places_.size() - 1)) {
    if (good_[places_[place] - 1].address == address) return false;
  }
  places_[place] = static_cast<std::uint32_t>(index + 1);
  return true;
}

bool ListCheck::work(const std::vector<Endpoint>& present) {
  const std::size_t end = std::min(list_->size(), next_ + endpoints_of_step);
  for (; next_ < end; ++next_) {
    const Endpoint& endpoint = (*list_)[next_];
    std::string why = why_invalid(endpoint);
    if (why.empty() && !note_address(endpoint.address, good_.size())) {
      why = "address '" + endpoint.address + "' is repeated";
    }
    if (why.empty()) {
      same_ = same_ && good_.size() < present.size() && endpoint == present[good_.size()];
      good_.push_back(endpoint);
    } else {
      ++dropped_;
      drop_reason_ = std::move(why);
    }
  }
  if (next_ < list_->size()) return true;
  same_ = same_ && good_.size() == present.size();
  return false;
}

}  // namespace hawser::cluster
