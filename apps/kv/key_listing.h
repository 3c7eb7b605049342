#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "kv/lane.h"
#include "kv/reply_pieces.h"
#include "kv/store.h"

namespace hawser::kv {

// Memory for the reply to KEYS.
struct ListingMemory {
  const hawser::detail::ReceiveBudget& budget;      // The budget of the connection's loop.
  std::shared_ptr<std::atomic<std::size_t>> total;  // See TravelCharge.
  // The connection has memory for the reply. Otherwise it is charged as it grows.
  bool charged = false;
};

// The keys of all shards that fit a pattern. Each shard looks for its keys in short steps on its own loop, and the loop
// serves others between them. So this is not a snapshot: a key that exists all the time is found once, and one that is
// made or removed meanwhile may be found. Belongs to the loop of its connection before start() and after `done`.
class KeyListing : public std::enable_shared_from_this<KeyListing> {
 public:
  // `done` is called on the loop of any shard.
  KeyListing(Store& store, std::string pattern, ListingMemory memory, std::function<void()> done);
  KeyListing(const KeyListing&) = delete;
  KeyListing& operator=(const KeyListing&) = delete;
  ~KeyListing();

  void start();
  // Nobody waits for the keys any more: `done` is called soon. Any thread.
  void give_up() noexcept { given_up_.store(true, std::memory_order_relaxed); }

  // ---- After `done` ----
  // Why there are no keys, as a reply. Empty: there are.
  const std::string& error() const noexcept { return error_; }
  // There was no memory for the reply, which has so many bytes without its first line, and the keys were only counted.
  bool too_large() const noexcept { return drops_.load(std::memory_order_relaxed); }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t keys() const noexcept { return keys_; }
  // Calls `visit(pieces)` for each part of the reply.
  template <class Visit>
  void each_part(Visit visit) {
    for (Part& part : parts_) visit(part.replies);
  }

 private:
  // The keys of one shard.
  struct Part {
    Part(StoreSite& of, std::atomic<std::size_t>* total) : site(of), charge(total), out(replies) {}

    StoreSite& site;
    TravelCharge charge;
    ReplyPieces replies;
    protocol::resp::ReplyWriter out;
    std::uint64_t sections = 0;  // See Shard::scan_section().
    std::uint64_t next = 0;
    std::size_t keys = 0;
    std::size_t bytes = 0;
    std::uint64_t compared = 0;  // Characters.
  };

  bool step(Part& part);
  void visit_section(Part& part, std::uint64_t& work);
  void drop(Part& part);
  bool ends_early(const Part& part) const noexcept;
  void part_done();

  const std::uint64_t compared_max_;  // StoreOptions::scan_work_max.
  const std::string pattern_;
  const ListingMemory memory_;
  const std::function<void()> done_;
  std::deque<Part> parts_;
  std::atomic<std::size_t> parts_left_ = 0;
  std::atomic<bool> given_up_ = false;
  std::atomic<bool> drops_ = false;  // The keys are only counted.
  std::string error_;
  std::size_t bytes_ = 0;
  std::size_t keys_ = 0;
};

}  // namespace hawser::kv
