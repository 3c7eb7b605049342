#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "transport/rdma/device/verbs.h"

namespace hawser::transport {

inline constexpr std::size_t sim_segments_max = 8;

// A request that a queue pair has accepted.
struct SimWork {
  std::uint64_t id = 0;
  std::array<rdma::Segment, sim_segments_max> segments{};
  unsigned segment_count = 0;
  std::vector<std::byte> inlined;  // A copy of inline data.
  std::uint32_t bytes = 0;
  rdma::Opcode opcode = rdma::Opcode::send;
  bool is_inline = false;
  bool signalled = false;
  bool solicited = false;
  bool fenced = false;
  bool done = false;
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t remote_key = 0;
  double posted_ns = 0;
};

// The requests of one queue pair that have not completed, by sequence number. Requests may be done in any order, and
// complete in the order in which they were posted. The slot of a request without a completion becomes free with the
// completion of a later one.
class SimSendQueue {
 public:
  // Slots in use.
  std::size_t used() const noexcept { return work_.size() + silent_; }
  // The sequence number of the next request.
  std::uint64_t next() const noexcept { return first_ + work_.size(); }
  void push(SimWork work) { work_.push_back(std::move(work)); }
  bool has(std::uint64_t sequence) const noexcept { return sequence >= first_ && sequence - first_ < work_.size(); }
  SimWork& at(std::uint64_t sequence) { return work_[sequence - first_]; }

  // The request is done. Removes the requests that complete now, and calls completed(const SimWork&) for those that are
  // signalled.
  template <class Completed>
  void finish(std::uint64_t sequence, Completed completed) {
    at(sequence).done = true;
    for (; !work_.empty() && work_.front().done; ++first_) {
      if (work_.front().signalled) {
        completed(std::as_const(work_.front()));
        silent_ = 0;
      } else {
        ++silent_;
      }
      work_.pop_front();
    }
  }
  // Removes all requests, whether they are done or not, and calls removed(const SimWork&) for each, the oldest first.
  // All slots are free then.
  template <class Removed>
  void clear(Removed removed) {
    for (const SimWork& work : work_) removed(work);
    first_ += work_.size();
    work_.clear();
    silent_ = 0;
  }

 private:
  std::deque<SimWork> work_;
  std::uint64_t first_ = 0;  // Sequence number of the first of them.
  std::size_t silent_ = 0;   // Completed without a completion, so that their slots are not free.
};

}  // namespace hawser::transport
