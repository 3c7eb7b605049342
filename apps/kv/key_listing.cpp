#include "kv/key_listing.h"

#include <new>
#include <utility>

#include "kv/commands.h"
#include "kv/glob.h"

namespace hawser::kv {
namespace {

// Replies of so many bytes of one connection are not charged.
constexpr std::size_t free_bytes_max = 32 * 1024;

}  // namespace

KeyListing::KeyListing(Store& store, std::string pattern, ListingMemory memory, std::function<void()> done)
    : compared_max_(store.options().scan_work_max),
      pattern_(std::move(pattern)),
      memory_(std::move(memory)),
      done_(std::move(done)) {
  for (unsigned i = 0; i < store.shards(); ++i) parts_.emplace_back(store.site(i), memory_.total.get());
}

KeyListing::~KeyListing() = default;

void KeyListing::start() {
  parts_left_ = parts_.size();
  for (Part& part : parts_) {
    auto begin = [listing = shared_from_this(), &part] {
      part.sections = part.site.shard().sections();
      part.site.add_stepped([listing, &part] { return listing->step(part); });
    };
    Loop::current() == &part.site.loop() ? begin() : part.site.loop().post(std::move(begin));
  }
}

bool KeyListing::ends_early(const Part& part) const noexcept {
  return given_up_.load(std::memory_order_relaxed) || part.compared > compared_max_ || part.bytes > reply_bytes_max;
}

// Returns true if it was the last one.
bool KeyListing::step(Part& part) {
  std::uint64_t work = 0;
  while (part.next < part.sections && work < turn_work_max && !ends_early(part)) visit_section(part, work);
  if (part.next < part.sections && !ends_early(part)) return false;
  part.out.flush();
  part_done();
  return true;
}

void KeyListing::visit_section(Part& part, std::uint64_t& work) {
  if (drops_.load(std::memory_order_relaxed)) drop(part);
  const bool all = pattern_ == "*";
  const std::uint64_t compared_before = part.compared;
  part.site.shard().scan_section(part.sections, part.next++, part.site.now(), [&](Entry& entry) {
    work += key_scan_cost;
    if (part.compared > compared_max_ || (!all && !matches_glob(pattern_, entry.key(), part.compared))) return;
    ++part.keys;
    part.bytes += entry.key_bytes + listed_key_overhead_bytes;
    if (part.bytes > reply_bytes_max || drops_.load(std::memory_order_relaxed)) return;
    try {
      part.out.bulk(entry.key());
    } catch (const std::bad_alloc&) {
      drops_ = true;
    }
  });
  ++work;
  work += part.compared - compared_before;
  const std::size_t free = free_bytes_max / parts_.size();
  if (memory_.charged || part.bytes <= free || drops_.load(std::memory_order_relaxed)) return;
  if (!part.charge.raise(memory_.budget, part.bytes - free)) drops_ = true;
}

void KeyListing::drop(Part& part) {
  part.out.detach();
  part.replies = {};
  part.charge.release();
}

// The last one sees what the others have found.
void KeyListing::part_done() {
  if (parts_left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  bool takes_long = false;
  for (Part& part : parts_) {
    keys_ += part.keys;
    bytes_ += part.bytes;
    takes_long |= part.compared > compared_max_;
    if (drops_.load(std::memory_order_relaxed)) drop(part);
  }
  // It was listed again when the budget had memory for it, so it is the system that has none.
  if (memory_.charged && drops_.load(std::memory_order_relaxed)) error_ = "OOM there is no memory for the reply";
  if (takes_long) error_ = pattern_takes_long;
  if (bytes_ > reply_bytes_max) error_ = keys_too_long;
  done_();
}

}  // namespace hawser::kv
