#include "block/nbd/reply_queue.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace hawser::block::nbd {

MutableBytes ReplyBatch::memory(std::size_t bytes) {
  if (memory_ == nullptr) memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes_max);
  return {memory_.get() + end_, bytes};
}

void ReplyBatch::add(std::size_t bytes, Permit slot) {
  slots_.push_back(std::move(slot));
  end_ += bytes;
}

void ReplyBatch::sent(std::size_t bytes) noexcept {
  begin_ += bytes;
  if (begin_ < end_) return;
  begin_ = 0;
  end_ = 0;
  slots_.clear();
}

void ReplyQueue::push(std::unique_ptr<PendingRequest> pending) {
  held_bytes_ += pending->memory_bytes();
  queued_bytes_ += pending->reply_bytes();
  queue_.push_back(std::move(pending));
}

void ReplyQueue::clear() noexcept {
  batch_.clear();
  queue_.clear();
  held_bytes_ = 0;
  queued_bytes_ = 0;
  front_sent_ = 0;
}

void ReplyQueue::send(SocketStream& socket) {
  while (!empty()) {
    std::array<ConstBuffer, 64> pieces;
    std::size_t count = 0;
    if (const Bytes first = batch_.unsent(); !first.empty()) pieces[count++] = {first.data(), first.size()};
    std::size_t skip = front_sent_;
    for (auto reply = queue_.begin(); reply != queue_.end() && count + 2 <= pieces.size(); ++reply) {
      const PendingRequest& pending = **reply;
      for (const Bytes part : {pending.reply.bytes(), pending.sends_data ? Bytes((*reply)->data->bytes()) : Bytes()}) {
        const std::size_t skipped = std::min(skip, part.size());
        skip -= skipped;
        if (skipped == part.size()) continue;
        pieces[count++] = {part.data() + skipped, part.size() - skipped};
      }
    }
    const std::size_t accepted = socket.send_now(std::span(pieces).first(count));
    sent(accepted);
    if (accepted == 0) return;
  }
}

void ReplyQueue::sent(std::size_t bytes) {
  sent_bytes_ += bytes;
  const std::size_t of_batch = std::min(bytes, batch_.unsent().size());
  batch_.sent(of_batch);
  front_sent_ += bytes - of_batch;
  while (!queue_.empty()) {
    const PendingRequest& front = *queue_.front();
    const std::size_t all = front.reply_bytes();
    if (front_sent_ < all) return;
    front_sent_ -= all;
    queued_bytes_ -= all;
    held_bytes_ -= front.memory_bytes();
    queue_.pop_front();
  }
}

}  // namespace hawser::block::nbd
