#include "hawser/detail/receive_account.h"

namespace hawser::detail {
namespace {

// A refusal updates at most this many, so that it costs a peer more than the server.
constexpr int updates_max = 64;

}  // namespace

ReceiveBudget::ReceiveBudget(std::size_t bytes_max, std::size_t share_bytes_max, std::size_t peer_bytes_max)
    : bytes_max_(bytes_max),
      share_bytes_max_(share_bytes_max < bytes_max ? share_bytes_max : bytes_max),
      peer_bytes_max_(peer_bytes_max < bytes_max ? peer_bytes_max : bytes_max),
      abandoned_(std::make_shared<std::atomic<std::size_t>>(0)) {}

void ReceiveBudget::add_lagging(LaggingCharge& charge) noexcept {
  if (charge.next_ != nullptr) return;
  if (lagging_ == nullptr) {
    lagging_ = charge.next_ = charge.previous_ = &charge;
    return;
  }
  charge.next_ = lagging_;
  charge.previous_ = lagging_->previous_;
  charge.previous_->next_ = lagging_->previous_ = &charge;
}

void ReceiveBudget::remove_lagging(LaggingCharge& charge) noexcept {
  if (charge.next_ == nullptr) return;
  if (lagging_ == &charge) lagging_ = charge.next_ == &charge ? nullptr : charge.next_;
  charge.previous_->next_ = charge.next_;
  charge.next_->previous_ = charge.previous_;
  charge.next_ = charge.previous_ = nullptr;
}

// The next call begins with the charges that this one does not reach.
void ReceiveBudget::update_lagging() noexcept {
  const LaggingCharge* const first = lagging_;
  for (int i = 0; i < updates_max; ++i) {
    LaggingCharge& charge = *lagging_;
    lagging_ = charge.next_;
    charge.update();
    if (lagging_ == first) return;
  }
}

bool ReceiveAccount::updates_leave(std::size_t bytes) noexcept {
  if (budget_->lagging_ == nullptr) return false;
  budget_->update_lagging();
  return has_left(bytes);
}

// The last charge of a peer may go beyond, so that one message is kept also where the limits are small.
bool ReceiveAccount::begin_unread(std::size_t bytes) noexcept {
  if (budget_ == nullptr) return true;
  if (budget_->unread_ >= budget_->bytes_max_) return false;
  if (peer_ != nullptr && peer_->unread >= budget_->peer_bytes_max_) return false;
  budget_->unread_ += bytes;
  if (peer_ != nullptr) peer_->unread += bytes;
  return true;
}

void ReceiveAccount::end_unread(std::size_t bytes) noexcept {
  if (budget_ == nullptr) return;
  budget_->unread_ -= bytes;
  if (peer_ != nullptr) peer_->unread -= bytes;
}

bool ReceiveCharge::keep_block(ReceiveAccount& account, const Buffer& buffer, bool always) {
  if (account.newest_ != nullptr && account.newest_->block == buffer.block()) {
    kept_ = account.newest_;
    ++kept_->charges;
    return true;
  }
  const std::size_t bytes = buffer.size() < buffer.block()->size() ? buffer.block()->size() : buffer.size();
  auto* const node = new ReceiveAccount::KeptBlock(account, buffer.block(), bytes);
  if (always) {
    account.acquire_always(bytes);
  } else if (!account.acquire(bytes)) {
    delete node;
    return false;
  }
  kept_ = account.newest_ = node;
  return true;
}

void ReceiveCharge::release_block(ReceiveAccount::KeptBlock* kept) noexcept {
  kept->account.release(kept->bytes);
  if (kept->account.newest_ == kept) kept->account.newest_ = nullptr;
  delete kept;
}

}  // namespace hawser::detail
