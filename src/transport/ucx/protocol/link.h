#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/ucx/core/ucx_worker.h"
#include "transport/ucx/protocol/credits.h"

namespace hawser::transport::ucx {

// Parameters that each side announces to the other while they connect.
struct UcxPeer {
  std::uint64_t token = 0;       // Identifies the connection at the peer.
  std::size_t window_bytes = 0;  // Most bytes that may be on their way to the peer.
  std::size_t rendezvous_bytes_min = 0;
};

// State that the sender and the receiver of a connection share.
struct UcxLink {
  UcxWorker& worker;
  UcxTarget& target;        // The connection. It is notified when a UCX operation ends.
  std::uint64_t token = 0;  // Identifies the connection at the worker.
  UcxPeer peer{};
  std::unique_ptr<UcxEndpoint> endpoint{};
  UcxCredits credits{};

  const UcxOptions& options() const noexcept { return worker.options(); }
  UcxCore& core() const noexcept { return worker.core(); }
  void process_soon() { worker.process_soon(token); }
};

// Operations that UCX has not completed yet.
class Operations {
 public:
  void add(UcxOperation& operation) {
    operation.position = all_.size();
    all_.push_back(&operation);
  }
  void remove(UcxOperation& operation) noexcept {
    all_.back()->position = operation.position;
    all_[operation.position] = all_.back();
    all_.pop_back();
  }
  // The operations complete without a notification from now on.
  void abandon() noexcept {
    for (UcxOperation* operation : all_) operation->target = nullptr;
    all_.clear();
  }
  const std::vector<UcxOperation*>& all() const noexcept { return all_; }

 private:
  std::vector<UcxOperation*> all_;
};

inline void release(Block* block) noexcept {
  if (block != nullptr) block->release();
}

}  // namespace hawser::transport::ucx
