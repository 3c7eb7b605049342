#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/owned_counter.h"
#include "hawser/detail/receive_account.h"
#include "rpc/session/send_charge.h"
#include "transport/common/backlog_watermark.h"

namespace hawser::rpc {

// How many bytes may wait to be sent on a connection before it is not read any more: the mark. It is the least of the
// server's option, of the protocol's limit, and of what the connection's account can pay for. Backlogs are passed in.
// Loop's thread only.
class SendMark {
 public:
  // `total`: see SendCharge.
  SendMark(detail::ReceiveAccount& account, OwnedCounter* total) noexcept : charge_(account, total) {}

  std::size_t bytes() const noexcept { return watermark_.mark(); }
  // True if the backlog has been above the mark, until it has fallen to half of it.
  bool passed() const noexcept { return watermark_.passed(); }
  // False while the account lowers the mark.
  bool memory_left() const noexcept { return watermark_.mark() == wanted_; }

  // Computes the mark anew from the option, and compares the backlog with it.
  void renew(std::size_t option_bytes, std::size_t backlog) noexcept {
    wanted_ = std::min({option_bytes, limit_, SIZE_MAX - 1});
    watermark_.set(charge_.mark(wanted_), backlog);
  }
  // The protocol's limit. True if it has changed: renew() applies it.
  bool set_limit(std::size_t bytes) noexcept { return bytes != std::exchange(limit_, bytes); }

  // Bytes that wait beside the backlog: they are charged with it, and not compared with the mark.
  void set_waiting(std::size_t bytes, std::size_t backlog) noexcept {
    waiting_ = bytes;
    charge(backlog);
  }
  std::size_t waiting() const noexcept { return waiting_; }
  // Charges what waits. The mark falls while the account can't pay for more, and rises again later. Whoever waits for
  // the previous mark continues at the next on_sent() that returns true.
  void charge(std::size_t backlog) noexcept {
    if (charge_.set(backlog + waiting_) || !memory_left()) [[unlikely]]
      follow_account(backlog);
  }
  // Nothing waits any more.
  void clear() noexcept {
    waiting_ = 0;
    charge_.set(0);
  }

  // Must be called when bytes have been queued.
  void on_commit(std::size_t backlog) noexcept { watermark_.on_commit(backlog); }
  // Must be called when bytes have been sent. True: passed() has just become false.
  [[nodiscard]] bool on_sent(std::size_t backlog) noexcept { return watermark_.on_sent(backlog); }

 private:
  void follow_account(std::size_t backlog) noexcept {
    const std::size_t mark = charge_.mark(wanted_);
    if (mark != watermark_.mark()) watermark_.set(mark, passed() ? SIZE_MAX : backlog);
  }

  SendCharge charge_;  // For the backlog and waiting_.
  transport::BacklogWatermark watermark_;
  std::size_t wanted_ = SIZE_MAX;  // The mark while memory is left. renew() makes it less than SIZE_MAX.
  std::size_t limit_ = SIZE_MAX;
  std::size_t waiting_ = 0;
};

}  // namespace hawser::rpc
