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

// Places for messages, with what each holds: of one queue pair, or shared by many.
class ReceivePlaces {
 public:
  ReceivePlaces(RegisteredMemory& memory, std::size_t size_bytes, unsigned count);

  unsigned count() const noexcept { return static_cast<unsigned>(held_.size()); }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  transport::rdma::ReceiveRequest request(std::uint32_t place) const noexcept;
  Bytes contents(std::uint32_t place, std::size_t bytes) const noexcept;
  // A message of the pattern `seed` has arrived there.
  void hold(std::uint32_t place, std::uint64_t seed) noexcept { held_[place] = {true, seed}; }
  // Compares all that the places hold with what was sent.
  Result<void> verify() const;
  Result<void> verify(std::uint32_t place) const;

 private:
  struct Held {
    bool any = false;
    std::uint64_t seed = 0;
  };
  RegisteredMemory& memory_;
  const std::size_t size_bytes_;
  std::vector<Held> held_;
};

// Numbers from one thread to another. Bounded: holds all places that there are.
class HandoverRing {
 public:
  explicit HandoverRing(std::size_t capacity) : slots_(capacity + 1) {}
  bool push(std::uint32_t number) noexcept;
  std::optional<std::uint32_t> pop() noexcept;
  // The one who takes numbers is done with so many of them, in their order.
  void finished(std::uint64_t count) noexcept { finished_.store(count, std::memory_order_release); }
  std::uint64_t finished() const noexcept { return finished_.load(std::memory_order_acquire); }

 private:
  std::vector<std::uint32_t> slots_;
  alignas(64) std::atomic<std::size_t> head_ = 0;
  alignas(64) std::atomic<std::size_t> tail_ = 0;
  alignas(64) std::atomic<std::uint64_t> finished_ = 0;
};

// Writes of credits that may be under way for one connection: a quarter of its receives each.
inline constexpr unsigned credit_writes_max = 4;

// A shared receive queue, and how several threads post to it.
struct SharedPlaces {
  transport::rdma::SharedReceiveQueue* queue = nullptr;
  ReceivePlaces* places = nullptr;
  std::mutex mutex;  // Held while posting.
};

// One connection as its receiver has it.
struct IncomingStream {
  unsigned connection = 0;
  transport::rdma::QueuePair* queue_pair = nullptr;
  ReceivePlaces* places = nullptr;  // Null if it shares its receives.
  unsigned sender_places = 1;       // Of the sender's messages: says which pattern is due.
  std::uint64_t count = 0;          // Messages that will come.
  unsigned receives = 1;            // That are posted for it; its share of shared ones.
  // Where the sender reads how many it may send; 0 if nobody counts.
  std::uint64_t credit_address = 0;
  std::uint32_t credit_key = 0;

  std::uint64_t arrived = 0;
  std::uint64_t reposted = 0;  // Receives that have been posted for it so far, the first ones included.
  std::uint64_t granted = 0;   // Of those, what the sender has been told of.
  unsigned credit_writes = 0;  // Under way.
  std::vector<transport::rdma::ReceiveRequest> free{};  // To be posted again.
};

struct ReceiverPlan {
  unsigned poll_burst = 32;   // Completions taken at a time; at most poll_burst_max.
  unsigned repost_batch = 8;  // Receives posted again at a time.
  bool verify_each = false;   // Every message as it arrives; else what is there at the end.
};

// Receives from any number of connections over one completion queue, and posts receives again: by itself, under the
// lock of a shared queue, or by a central re-poster.
class StreamReceiver final : public Role {
 public:
  StreamReceiver(const ReceiverPlan& plan, transport::rdma::CompletionQueue& completions,
                 std::vector<IncomingStream> connections, SharedPlaces* shared, HandoverRing* to_reposter);

  // Posts the first receives; and for each connection with credits, `granted` is what its sender begins with.
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
  std::unordered_map<std::uint32_t, std::size_t> by_number_;  // Of the queue pair.
  SharedPlaces* const shared_;
  HandoverRing* const to_reposter_;
  std::vector<transport::rdma::ReceiveRequest> shared_free_;
  std::deque<std::size_t> to_return_;  // Whose receives are in shared_free_, or at the re-poster.
  std::uint64_t taken_back_ = 0;       // From the re-poster.
  std::uint64_t remaining_ = 0;
};

// The one thread that posts to a shared receive queue, as the study had it.
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
  std::vector<std::uint64_t> popped_;  // From each ring.
  std::vector<transport::rdma::ReceiveRequest> free_;
};

}  // namespace hawser::lab
