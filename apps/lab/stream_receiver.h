#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lab/executor.h"
#include "lab/memory.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// Slots for received messages, and the message that each holds. They belong to one queue pair or are shared by several.
class ReceivePlaces {
 public:
  ReceivePlaces(LabMemory& memory, std::size_t size_bytes, unsigned count);

  unsigned count() const noexcept { return static_cast<unsigned>(held_.size()); }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  transport::rdma::ReceiveRequest request(std::uint32_t place) const noexcept;
  Bytes contents(std::uint32_t place, std::size_t bytes) const noexcept;
  // Records that a message with the pattern `seed` has arrived in slot `place`.
  void hold(std::uint32_t place, std::uint64_t seed) noexcept { held_[place] = {true, seed}; }
  // Compares the messages in all slots with the messages that were sent.
  Result<void> verify() const;
  Result<void> verify(std::uint32_t place) const;

 private:
  struct Held {
    bool any = false;
    std::uint64_t seed = 0;
  };
  LabMemory& memory_;
  const std::size_t size_bytes_;
  std::vector<Held> held_;
};

// Passes numbers from one thread to another. It has room for the numbers of all slots.
class HandoverRing {
 public:
  explicit HandoverRing(std::size_t capacity) : slots_(capacity + 1) {}
  bool push(std::uint32_t number) noexcept;
  std::optional<std::uint32_t> pop() noexcept;
  // The consumer has processed the first `count` numbers.
  void finished(std::uint64_t count) noexcept { finished_.store(count, std::memory_order_release); }
  std::uint64_t finished() const noexcept { return finished_.load(std::memory_order_acquire); }

 private:
  std::vector<std::uint32_t> slots_;
  alignas(64) std::atomic<std::size_t> head_ = 0;
  alignas(64) std::atomic<std::size_t> tail_ = 0;
  alignas(64) std::atomic<std::uint64_t> finished_ = 0;
};

// Most writes of credits that one connection has outstanding. Each grants a quarter of its receives.
inline constexpr unsigned credit_writes_max = 4;

// A shared receive queue, and the lock under which several threads post to it.
struct SharedPlaces {
  transport::rdma::SharedReceiveQueue* queue = nullptr;
  ReceivePlaces* places = nullptr;
  std::mutex mutex;  // Held while posting.
};

// State of one connection at its receiver.
struct IncomingStream {
  unsigned connection = 0;
  transport::rdma::QueuePair* queue_pair = nullptr;
  ReceivePlaces* places = nullptr;  // Null if the connection shares its receives.
  unsigned sender_places = 1;       // Slots of the sender's messages. They determine the expected pattern.
  std::uint64_t count = 0;          // Messages that will arrive.
  unsigned receives = 1;            // Receives that are posted for it, or its share of shared ones.
  // Address at which the sender reads how many messages it may send; 0 without credits.
  std::uint64_t credit_address = 0;
  std::uint32_t credit_key = 0;

  std::uint64_t arrived = 0;
  std::uint64_t reposted = 0;  // Receives that have been posted for it so far, the first ones included.
  std::uint64_t granted = 0;   // Number of them that has been granted to the sender.
  unsigned credit_writes = 0;  // Outstanding writes of credits.
  std::vector<transport::rdma::ReceiveRequest> free{};  // Receives to be posted again.
};

struct ReceiverPlan {
  unsigned poll_burst = 32;   // Completions taken at a time; at most poll_burst_max.
  unsigned repost_batch = 8;  // Receives posted again at a time.
  bool verify_each = false;   // Verify each message when it arrives; else the messages that are present at the end.
};

// Receives from any number of connections over one completion queue. Receives are posted again by this role, by this
// role under the lock of a shared queue, or by a central re-poster.
class StreamReceiver final : public Role {
 public:
  StreamReceiver(const ReceiverPlan& plan, transport::rdma::CompletionQueue& completions,
                 std::vector<IncomingStream> connections, SharedPlaces* shared, HandoverRing* to_reposter);

  // Posts the first receives. For each connection with credits, it sets `granted` to the first credits of its sender.
  Result<void> post_first();
  Result<bool> step(Processor& processor) override;
  bool done() const override { return remaining_ == 0; }
  std::uint64_t granted(std::size_t connection) const noexcept { return connections_[connection].granted; }

 private:
  Result<void> on_completion(Processor& processor, const transport::rdma::Completion& completion);
  Result<void> give_back(Processor& processor, IncomingStream& from, std::uint32_t place);
  Result<void> repost(IncomingStream& from);
  Result<void> repost_shared();
  Result<void> returned(IncomingStream& from, std::uint64_t receives);
  Result<void> take_back();
  Result<void> grant_if_due(IncomingStream& to);

  const ReceiverPlan plan_;
  transport::rdma::CompletionQueue& completions_;
  std::vector<IncomingStream> connections_;
  std::unordered_map<std::uint32_t, std::size_t> by_number_;  // By the number of the queue pair.
  SharedPlaces* const shared_;
  HandoverRing* const to_reposter_;
  std::vector<transport::rdma::ReceiveRequest> shared_free_;
  std::deque<std::size_t> to_return_;  // Connections whose receives are in shared_free_ or at the re-poster.
  std::uint64_t taken_back_ = 0;       // Receives that the re-poster has posted.
  std::uint64_t remaining_ = 0;
};

// The single thread that posts to a shared receive queue, as in the study.
class Reposter final : public Role {
 public:
  Reposter(SharedPlaces& shared, std::vector<HandoverRing*> rings, unsigned batch, std::uint64_t expected)
      : shared_(shared), rings_(std::move(rings)), batch_(batch), remaining_(expected), popped_(rings_.size()) {}
  Result<bool> step(Processor& processor) override;
  bool done() const override { return remaining_ == 0; }

 private:
  SharedPlaces& shared_;
  const std::vector<HandoverRing*> rings_;
  const unsigned batch_;
  std::uint64_t remaining_;
  std::vector<std::uint64_t> popped_;  // Numbers taken from each ring.
  std::vector<transport::rdma::ReceiveRequest> free_;
};

}  // namespace hawser::lab
