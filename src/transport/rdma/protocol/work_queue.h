#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/rdma/device/verbs.h"
#include "transport/rdma/protocol/credits.h"
#include "transport/rdma/protocol/records.h"
#include "transport/rdma/protocol/send_slots.h"

namespace hawser::transport::rdma {

// State that a connection's sender and receiver share: the queue pair, its slots, the credits, and the requests that
// wait for the next doorbell.
class WorkQueue {
 public:
  WorkQueue(QueuePair& pair, Credits counted, SendSlots counted_slots) noexcept
      : credits(counted), slots(counted_slots), pair_(pair) {}

  Credits credits;
  SendSlots slots;

  std::size_t inline_bytes() const noexcept { return pair_.inline_bytes(); }

  // Adds a packet. Its memory stays unchanged until submit() and, unless the packet goes inline, until the id has
  // completed. Uses a credit and a slot; the caller has checked that both are available.
  std::uint64_t send(Segment segment, Immediate immediate, bool must_signal) {
    if (count_ == batch_max) submit();
    immediate.granted = credits.sending(Immediate::grant_max);
    const bool inlined = segment.bytes <= pair_.inline_bytes();
    const SendSlots::Posted posted = slots.post(must_signal);
    segments_[count_] = segment;
    batch_[count_] = {.id = posted.id,
                      .segments = std::span(&segments_[count_], segment.bytes == 0 ? 0U : 1U),
                      .opcode = Opcode::send_with_immediate,
                      .inlined = inlined,
                      .signalled = posted.signalled,
                      .immediate = immediate.encode()};
    last_send_ = count_++;
    return posted.id;
  }
  // Adds an RDMA read. Uses a slot.
  std::uint64_t read(Segment into, std::uint64_t address, std::uint32_t key) {
    return access(Opcode::read, into, address, key, false);
  }
  // Like read(), in the other direction. The peer has the data before it receives packets that are sent later.
  std::uint64_t write(Segment from, std::uint64_t address, std::uint32_t key) {
    return access(Opcode::write, from, address, key, from.bytes <= pair_.inline_bytes());
  }

  // Posts the waiting requests with one doorbell. An error is kept.
  void submit() {
    if (count_ == 0) return;
    // One wake-up per batch is enough for a peer that sleeps.
    if (last_send_ != none) batch_[last_send_].solicited = true;
    last_send_ = none;
    const auto done = pair_.post_send(std::span(batch_.data(), std::exchange(count_, 0)));
    if (!done && !failed_) failed_ = done.error();
  }
  const std::optional<Error>& failed() const noexcept { return failed_; }

 private:
  static constexpr std::size_t batch_max = 32;
  static constexpr std::size_t none = SIZE_MAX;

  std::uint64_t access(Opcode opcode, Segment local, std::uint64_t address, std::uint32_t key, bool inlined) {
    if (count_ == batch_max) submit();
    const SendSlots::Posted posted = slots.post(true);
    segments_[count_] = local;
    batch_[count_] = {.id = posted.id,
                      .segments = std::span(&segments_[count_], 1U),
                      .opcode = opcode,
                      .inlined = inlined,
                      .signalled = true,
                      .remote_address = address,
                      .remote_key = key};
    ++count_;
    return posted.id;
  }

  QueuePair& pair_;
  std::array<SendRequest, batch_max> batch_;
  std::array<Segment, batch_max> segments_;
  std::size_t count_ = 0;
  std::size_t last_send_ = none;
  std::optional<Error> failed_;
};

}  // namespace hawser::transport::rdma
