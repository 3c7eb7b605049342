#include "rpc/session/backlog_charge.h"

#include <chrono>
#include <new>
#include <utility>

namespace hawser::rpc {

void BacklogCharge::change_max(std::size_t bytes_max) {
  bytes_max_ = bytes_max;
  set_mark(charge_.mark(bytes_max_));
}

void BacklogCharge::set_mark(std::size_t bytes) {
  if (std::exchange(mark_, bytes) == bytes) return;
  connection_.set_high_watermark(bytes);
  // The connection waits for another mark now. Whoever waited for the previous one continues.
  if (room()) session_.on_drained();
}

void BacklogCharge::charge_long() noexcept {
  if (budget_ == nullptr || ended_) return;
  if (connection_.backlog() > charge_.charged() + charged_later_max) {
    connection_.flush();
    if (ended_) return;
    charge_and_watch();
    // The mark rises only in check(), because whoever waits continues then.
    const std::size_t mark = charge_.mark(bytes_max_);
    if (mark < mark_) connection_.set_high_watermark(mark_ = mark);
  }
  if (!timer_.running()) timer_.start(loop_, loop_.now());
}

void BacklogCharge::update() noexcept {
  const std::size_t backlog = connection_.backlog();
  charge_.set(backlog > SendCharge::step_bytes ? backlog : 0);
}

void BacklogCharge::charge_and_watch() noexcept {
  update();
  if (charge_.charged() != 0) {
    budget_->add_lagging(*this);
  } else {
    budget_->remove_lagging(*this);
  }
}

void BacklogCharge::check() noexcept {
  constexpr Duration interval = std::chrono::milliseconds(20);
  charge_and_watch();
  if (charge_.charged() != 0) timer_.start(loop_, loop_.after(interval));
  try {
    set_mark(charge_.mark(bytes_max_));
  } catch (const std::bad_alloc&) {
    session_.on_closed(Error::of_connection(ErrorCode::internal, "out of memory"));
  }
}

void BacklogCharge::end() noexcept {
  ended_ = true;
  timer_.stop();
  if (budget_ != nullptr) budget_->remove_lagging(*this);
  charge_.set(0);
}

}  // namespace hawser::rpc
