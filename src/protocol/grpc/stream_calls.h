#pragma once

#include <cstddef>
#include <vector>

#include "hawser/detail/call_operation.h"
#include "protocol/grpc/grpc_stream.h"

namespace hawser::protocol::grpc {

// The calls in flight of a client's connection, each with its stream.
class StreamCalls {
 public:
  std::size_t size() const noexcept { return size_; }
  // Null if the call of the stream has ended.
  detail::CallOperation* find(const GrpcStream& stream) const noexcept {
    const std::size_t slot = slot_of(stream);
    return slot < by_slot_.size() ? by_slot_[slot] : nullptr;
  }
  void add(const GrpcStream& stream, detail::CallOperation& operation) {
    const std::size_t slot = slot_of(stream);
    if (slot >= by_slot_.size()) by_slot_.resize(slot + 1);
    by_slot_[slot] = &operation;
    ++size_;
  }
  // The stream has a call.
  void remove(const GrpcStream& stream) noexcept {
    by_slot_[slot_of(stream)] = nullptr;
    --size_;
  }

 private:
  static std::size_t slot_of(const GrpcStream& stream) noexcept { return stream.call & 0xFFFF; }

  std::vector<detail::CallOperation*> by_slot_;
  std::size_t size_ = 0;
};

}  // namespace hawser::protocol::grpc
