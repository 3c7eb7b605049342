#pragma once

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rdma/cable.h"
#include "tests/tls/roce.h"

namespace hawser::testing_tools {

// A cable between two Soft-RoCE devices whose every packet passes through the hands of a man in the middle. End 0 is
// the client's, end 1 the server's. Packets of other protocols pass as they are.
class AttackedWire {
 public:
  // Called with the packets of RoCE that end `from` sends, on the thread of the wire. It passes on what it likes with
  // send().
  using Carry = std::function<void(std::size_t from, RocePacket packet)>;

  AttackedWire() : cable_(rdma_tests::CableKind::tap) {
    if (there()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  bool there() const { return cable_.there(); }
  // Returns when the earlier one is not called any more. Null: all packets pass as they are.
  void set_carry(Carry carry) {
    const std::lock_guard lock(mutex_);
    carry_ = std::move(carry);
  }
  // Within `Carry` only.
  void send(std::size_t to, const RocePacket& packet) { send_frame(to, packet.frame()); }
  void send_frame(std::size_t to, Bytes frame) const {
    // A full queue loses packets, as networks do.
    static_cast<void>(::write(cable_.taps().at(to), frame.data(), frame.size()));
  }
  std::size_t packets() const { return packets_; }
  // Packets whose checksums are not those that RocePacket computes: it would not be able to forge any.
  std::size_t not_understood() const { return not_understood_; }

 private:
  void run(const std::stop_token& stop) {
    Octets frame(65536);
    std::array<pollfd, 2> ready{};
    for (std::size_t end = 0; end < 2; ++end) ready[end] = {cable_.taps()[end], POLLIN, 0};
    while (!stop.stop_requested()) {
      ::poll(ready.data(), ready.size(), 20);
      for (std::size_t end = 0; end < 2; ++end) {
        for (int burst = 0; burst < 64; ++burst) {
          const ssize_t size = ::read(cable_.taps()[end], frame.data(), frame.size());
          if (size <= 0) break;
          pass(end, Bytes(frame).first(static_cast<std::size_t>(size)));
        }
      }
    }
  }
  void pass(std::size_t from, Bytes frame) {
    std::optional<RocePacket> packet = RocePacket::parse(frame);
    if (!packet) return send_frame(1 - from, frame);
    ++packets_;
    if (!packet->intact()) ++not_understood_;
    const std::lock_guard lock(mutex_);
    if (!carry_) return send_frame(1 - from, frame);
    carry_(from, std::move(*packet));
  }

  const rdma_tests::Cable cable_;
  std::mutex mutex_;
  Carry carry_;
  std::atomic<std::size_t> packets_ = 0;
  std::atomic<std::size_t> not_understood_ = 0;
  std::jthread thread_;
};

// The numbers of one direction of a connection, of which the attacker inserts or takes out packets: later packets get
// other numbers, so that neither side notices a gap.
class Renumbering {
 public:
  // From now on the packet `psn` of the sender comes behind `count` packets of the attacker.
  void insert(std::uint32_t psn, std::int32_t count = 1) { steps_.push_back({psn, count}); }
  // The packet `psn` of the sender does not reach the receiver.
  void remove(std::uint32_t psn) { steps_.push_back({psn + 1, -1}); }
  // The number that the receiver expects for the sender's packet `psn`.
  std::uint32_t to_receiver(std::uint32_t psn) const {
    std::int32_t sum = 0;
    for (const Step& step : steps_) sum += psn_distance(psn, step.from) >= 0 ? step.change : 0;
    return (psn + static_cast<std::uint32_t>(sum)) & psn_mask;
  }
  // The opposite, for answers. An answer to a packet of the attacker becomes one to the sender's packet before it.
  std::uint32_t to_sender(std::uint32_t psn) const {
    std::int32_t sum = 0;
    for (const Step& step : steps_) sum += step.change;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      const std::uint32_t own = (psn - static_cast<std::uint32_t>(sum)) & psn_mask;
      if (psn_distance(own, steps_[i].from) >= 0) return own;
      sum -= steps_[i].change;
      const std::uint32_t before = (psn - static_cast<std::uint32_t>(sum)) & psn_mask;
      if (psn_distance(before, steps_[i].from) >= 0) return (steps_[i].from - 1) & psn_mask;
    }
    return (psn - static_cast<std::uint32_t>(sum)) & psn_mask;
  }

 private:
  struct Step {
    std::uint32_t from;
    std::int32_t change;
  };
  std::vector<Step> steps_;
};

// One connection, with the renumbering of each end's packets.
struct AttackedLink {
  std::array<Renumbering, 2> numbers;
  // Gives a packet of end `from` the number that the other end expects.
  void renumber(std::size_t from, RocePacket& packet) const {
    packet.set_psn(packet.response() ? numbers[1 - from].to_sender(packet.psn())
                                     : numbers[from].to_receiver(packet.psn()));
  }
};

// Skips the test without a guest.
#define NEEDS_ATTACKED_WIRE(wire)                                                                          \
  if (!(wire).there()) {                                                                                   \
    ASSERT_FALSE(::hawser::rdma_tests::in_guest()) << "a cable of TAP devices can't be made in the guest"; \
    GTEST_SKIP() << "no Soft-RoCE devices with a cable can be added here";                                 \
  }                                                                                                        \
  static_assert(true)

}  // namespace hawser::testing_tools
