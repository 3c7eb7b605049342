#include "transport/rdma/protocol/packet_chunks.h"

#include <utility>

namespace hawser::transport::rdma {

PacketChunks::PacketChunks(WorkQueue& work_queue, std::shared_ptr<MemoryPool> pool, const RegisteredMemory& first,
                           const PacketChunkOptions& options)
    : work_queue_(work_queue), pool_(std::move(pool)), options_(options) {
  chunks_.push(std::make_unique<Chunk>(Chunk{.memory = first}));
}

PacketChunks::~PacketChunks() {
  while (!chunks_.empty()) pool_->release(chunks_.pop()->memory);
  if (spare_ != nullptr) pool_->release(spare_->memory);
}

bool PacketChunks::make_more_room(std::size_t bytes) {
  if (open_bytes() != 0) {
    close_packet();
    if (room() >= bytes) return true;
  }
  return next_chunk() && room() >= bytes;
}

bool PacketChunks::next_chunk() {
  recycle();
  if (current().filled == 0) return true;
  if (chunks_.size() >= options_.chunks_max) return false;
  if (spare_ == nullptr) {
    const auto memory = pool_->acquire(options_.chunk_bytes, MemoryPool::Use::connection);
    if (!memory) return false;  // At the watermark, sending continues with the existing chunks.
    spare_ = std::make_unique<Chunk>(Chunk{.memory = *memory});
  }
  close_packet();
  chunks_.push(std::move(spare_));
  return true;
}

void PacketChunks::recycle() {
  work_queue_.submit();
  while (chunks_.size() > 1 && is_free(*chunks_.front())) {
    std::unique_ptr<Chunk> free = chunks_.pop();
    if (spare_ == nullptr) {
      free->filled = free->open = 0;
      spare_ = std::move(free);
    } else {
      pool_->release(free->memory);
    }
  }
  if (is_free(current())) current().filled = current().open = 0;
}

}  // namespace hawser::transport::rdma
