#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "transport/rdma/device/verbs.h"
#include "transport/rdma/protocol/credits.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/protocol/send_slots.h"

namespace hawser::transport::rdma {

// State that a connection's sender and receiver share: the queue pair, its slots, the credits, and the requests that
// wait for the next doorbell.
class WorkQueue {
 public:
  WorkQueue(QueuePair& pair, RdmaCredits counted, SendSlots counted_slots) noexcept
      : credits(counted), slots(counted_slots), pair_(pair) {}

  RdmaCredits credits;
  SendSlots slots;

  std::size_t inline_bytes() const noexcept { return pair_.inline_bytes(); }

  // Adds a packet. Its memory stays unchanged until submit() and, unless the packet goes inline, until the id has
  // completed. Uses a credit and a slot; the caller has checked that both are available.
  std::uint64_t send(Segment segment, Immediate immediate, bool must_signal) {
    if (count_ == batch_max || segment_count_ == segments_max) submit();
    ++sends_;
    immediate.granted = credits.sending(Immediate::grant_max);
    const bool inlined = segment.bytes <= pair_.inline_bytes();
    const SendSlots::Posted posted = slots.post(must_signal);
    batch_[count_] = {.id = posted.id,
                      .segments = add(std::span(&segment, segment.bytes == 0 ? 0U : 1U)),
                      .opcode = Opcode::send_with_immediate,
                      .inlined = inlined,
                      .signalled = posted.signalled,
                      .immediate = immediate.encode()};
    last_send_ = count_++;
    return posted.id;
  }
  // Adds an RDMA read, which is signalled. Uses a slot.
  std::uint64_t read(Segment into, std::uint64_t address, std::uint32_t key) {
    return access(Opcode::read, std::span(&into, 1), address, key, true).id;
  }
  // Adds a read into the segments, or a write from them, of at most segments_max. Uses a slot. The peer has the data of
  // a write before it receives packets that are sent later. `may_inline`: the processor can read the segments.
  SendSlots::Posted access(Opcode opcode, std::span<const Segment> local, std::uint64_t address, std::uint32_t key,
                           bool must_signal, bool may_inline = true) {
    if (count_ == batch_max || segment_count_ + local.size() > segments_max) submit();
    std::size_t bytes = 0;
    for (const Segment& one : local) bytes += one.bytes;
    const SendSlots::Posted posted = slots.post(must_signal);
    batch_[count_] = {.id = posted.id,
                      .segments = add(local),
                      .opcode = opcode,
                      .inlined = may_inline && opcode == Opcode::write && bytes <= pair_.inline_bytes(),
                      .signalled = posted.signalled,
                      .remote_address = address,
                      .remote_key = key};
    ++count_;
    return posted;
  }

  // Posts the waiting requests with one doorbell. An error is kept.
  void submit() {
    if (count_ == 0) return;
    // One wake-up per batch is enough for a peer that sleeps.
    if (last_send_ != none) batch_[last_send_].solicited = true;
    last_send_ = none;
    const std::size_t count = std::exchange(count_, 0);
    segment_count_ = 0;
    const auto done = pair_.post_send(std::span(batch_.data(), count));
    const std::size_t accepted = done ? count : std::min(count, pair_.accepted());
    if (!failed_ && accepted != 0) submitted_ = batch_[accepted - 1].id;
    if (!done && !failed_) failed_ = done.error();
  }
  const std::optional<Error>& failed() const noexcept { return failed_; }
  // Id of the last request that the device has accepted; it may execute none behind it.
  std::uint64_t submitted() const noexcept { return submitted_; }
  // Number of packets so far.
  std::uint64_t sends() const noexcept { return sends_; }

 private:
  static constexpr std::size_t batch_max = 32;
  static constexpr std::size_t segments_max = 64;  // Limit of all waiting requests together.
  static constexpr std::size_t none = SIZE_MAX;

  std::span<const Segment> add(std::span<const Segment> segments) noexcept {
    const std::span<Segment> here(segments_.data() + segment_count_, segments.size());
    std::copy(segments.begin(), segments.end(), here.begin());
    segment_count_ += segments.size();
    return here;
  }

  QueuePair& pair_;
  std::array<SendRequest, batch_max> batch_;
  std::array<Segment, segments_max> segments_;
  std::size_t count_ = 0;
  std::size_t segment_count_ = 0;
  std::uint64_t submitted_ = 0;
  std::uint64_t sends_ = 0;
  std::size_t last_send_ = none;
  std::optional<Error> failed_;
};

}  // namespace hawser::transport::rdma
