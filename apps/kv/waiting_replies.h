#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/commands.h"
#include "kv/reply_pieces.h"
#include "protocol/resp/reply_writer.h"

namespace hawser::kv {

// A reply that is not complete, or waits for one.
struct WaitingReply {
  CommandRoute route = CommandRoute::connection;
  std::size_t parts_left = 0;
  std::int64_t sum = 0;
  std::string text = {};
  std::unique_ptr<ReplyPieces> pieces = {};  // They follow the text.
  std::vector<std::string> parts = {};
  std::string error = {};     // Takes the place of the replies of the parts.
  std::size_t bytes = 0;      // `text`, `pieces` and `parts` have so many.
  bool close = false;         // The connection ends behind it.
  std::uint64_t durable = 0;  // It waits for the log with this number; 0: it does not.

  // Writes all but the pieces.
  void write_to(protocol::resp::ReplyWriter& out);
};

// The replies of a connection that wait, in the order of their commands. Each has a number, its slot. One thread.
class WaitingReplies {
 public:
  // Adds a reply behind the others, whose text and pieces have so many bytes. Returns its slot.
  std::uint64_t add(WaitingReply reply, std::size_t bytes = 0);
  // Memory for the replies of that many parts, which become the elements of a list.
  void expect_elements(std::uint64_t slot, std::size_t parts);
  // Adds the reply of one part to that of its command. The reply becomes an error if it grows beyond reply_bytes_max,
  // or with the first part that is an error.
  void add_part(std::uint64_t slot, std::uint32_t part, std::string_view reply);
  // The reply becomes an error.
  void fail(std::uint64_t slot, std::string error);
  // Removes the first reply.
  WaitingReply take_first();
  void clear() noexcept;
  template <class Visit>
  void each(Visit visit) const {
    for (const WaitingReply& reply : replies_) visit(reply);
  }

  bool empty() const noexcept { return replies_.empty(); }
  std::size_t size() const noexcept { return replies_.size(); }
  // True if the first reply can be written.
  bool ready() const noexcept { return !replies_.empty() && replies_.front().parts_left == 0; }
  // The slot of the first reply, or of the next one if none waits.
  std::uint64_t first_slot() const noexcept { return first_slot_; }
  std::uint64_t last_slot() const noexcept { return first_slot_ + replies_.size() - 1; }
  // The slot is one of a reply that waits.
  WaitingReply& at(std::uint64_t slot) noexcept { return replies_[slot - first_slot_]; }
  // Bytes of all.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void hold(WaitingReply& reply, std::size_t bytes) noexcept {
    reply.bytes += bytes;
    bytes_ += bytes;
  }

  std::deque<WaitingReply> replies_;
  std::uint64_t first_slot_ = 0;
  std::size_t bytes_ = 0;  // The sum of WaitingReply::bytes.
};

}  // namespace hawser::kv
