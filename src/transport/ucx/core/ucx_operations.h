#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport {

class UcxCore;
class UcxTarget;
struct UcxEndpoint;

// A send or a fetch that UCX executes, and the memory that must stay valid meanwhile.
struct UcxOperation {
  enum class Kind : std::uint8_t { send, fetch };
  UcxCore* core = nullptr;
  UcxTarget* target = nullptr;      // Null when nobody is notified of the completion.
  Block* block = nullptr;           // Source or destination of the data; recycle() releases this reference.
  SendCompletion* owner = nullptr;  // The target notifies it when the operation has completed.
  void* tag = nullptr;              // For the target's use, as are the next two fields.
  std::size_t counted = 0;
  std::size_t position = 0;
  std::size_t bytes = 0;  // Size of a fetch.
  std::array<std::byte, UcxHeader::bytes> header{};
  Kind kind = Kind::send;
  bool done = false;  // UCX has completed it.
  ucs_status_t status = UCS_OK;
  UcxEndpoint* endpoint = nullptr;  // The endpoint that waits for this operation before it is closed, or null.
  UcxOperation* next = nullptr;
};

// The operations of one worker: those that are used, the free ones, and those that UCX has completed, until their
// targets receive them. The user serializes all functions.
class UcxOperations {
 public:
  UcxOperation* acquire(UcxCore& core, UcxTarget& target, UcxOperation::Kind kind);
  // Releases the operation's block and makes the operation available again. UCX must have completed it. The block of a
  // fetch that failed stays until the worker is destroyed: UCX's TCP transport (1.13) writes the rest of the payload
  // that a socket holds to the memory also after it has cancelled the fetch.
  void recycle(UcxOperation& operation) noexcept;
  // Bytes of the blocks of failed fetches.
  std::size_t doubtful_bytes() const noexcept { return doubtful_bytes_; }
  // The worker has been destroyed: releases the blocks of all operations.
  void release_blocks() noexcept;

  // UCX has completed the operation.
  void add_ended(UcxOperation& operation, ucs_status_t status) noexcept;
  bool any_ended() const noexcept { return ended_first_ != nullptr; }
  // Returns the oldest operation that has completed and was not returned yet, with the later ones behind it, or null.
  UcxOperation* take_ended() noexcept {
    ended_last_ = nullptr;
    return std::exchange(ended_first_, nullptr);
  }

 private:
  std::vector<std::unique_ptr<UcxOperation>> all_;
  UcxOperation* free_ = nullptr;
  UcxOperation* ended_first_ = nullptr;
  UcxOperation* ended_last_ = nullptr;
  std::size_t doubtful_bytes_ = 0;
};

}  // namespace hawser::transport
