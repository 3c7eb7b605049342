#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec/decoder.h"
#include "hawser/task.h"

// Accounting of the memory that peers make a server hold. Not for users. docs/decisions/0019.
namespace hawser::detail {

// A charge that may be larger than what it stands for, until update(). Loop's thread only.
class LaggingCharge {
 public:
  // Sets the charge to what is held now. It must not acquire() anything.
  virtual void update() noexcept = 0;

 protected:
  ~LaggingCharge() = default;

 private:
  friend class ReceiveBudget;
  LaggingCharge* next_ = nullptr;  // The list of the budget is a ring.
  LaggingCharge* previous_ = nullptr;
};

// The memory of one loop for data that its connections receive and keep. Loop's thread only, except used().
class ReceiveBudget {
 public:
  // `share_bytes_max` limits each connection, `peer_bytes_max` all connections of one peer. All in bytes.
  ReceiveBudget(std::size_t bytes_max, std::size_t share_bytes_max, std::size_t peer_bytes_max = SIZE_MAX);
  ReceiveBudget(const ReceiveBudget&) = delete;
  ReceiveBudget& operator=(const ReceiveBudget&) = delete;

  std::size_t bytes_max() const noexcept { return bytes_max_; }
  std::size_t share_bytes_max() const noexcept { return share_bytes_max_; }
  std::size_t peer_bytes_max() const noexcept { return peer_bytes_max_; }
  // Any thread.
  std::size_t used() const noexcept { return charged() + abandoned_->load(std::memory_order_relaxed); }

  // Before something is refused, the charges in this list are updated. Both do nothing if nothing is to be done.
  void add_lagging(LaggingCharge& charge) noexcept;
  void remove_lagging(LaggingCharge& charge) noexcept;

 private:
  friend class ReceiveAccount;
  std::size_t charged() const noexcept { return used_.load(std::memory_order_relaxed); }
  void update_lagging() noexcept;

  const std::size_t bytes_max_;
  const std::size_t share_bytes_max_;
  const std::size_t peer_bytes_max_;
  std::atomic<std::size_t> used_{0};
  // The part that no account pays for: memory of work on other threads that nobody awaits (WorkCharge), and what other
  // threads add for what travels to this loop.
  const std::shared_ptr<std::atomic<std::size_t>> abandoned_;
  LaggingCharge* lagging_ = nullptr;
  std::size_t unread_ = 0;  // See begin_unread().
};

// The part of a loop's budget that all connections of one peer use.
struct ReceivePeer {
  std::size_t used = 0;
  std::size_t unread = 0;  // See begin_unread().
};

// The part of a loop's budget that one connection uses. Outlives all its charges.
class ReceiveAccount {
 public:
  // Without a budget, nothing is refused. Without a peer, other connections of the same peer do not count. Both outlive
  // the account.
  explicit ReceiveAccount(ReceiveBudget* budget, ReceivePeer* peer = nullptr) noexcept : budget_(budget), peer_(peer) {}
  ReceiveAccount(const ReceiveAccount&) = delete;
  ReceiveAccount& operator=(const ReceiveAccount&) = delete;
  ~ReceiveAccount() { release(used_); }

  // Each connection may use this much even if other connections have used up the budget, so that small requests are
  // served. The number of connections bounds the total.
  static constexpr std::size_t reserve_bytes = 4 * 1024;

  bool bounded() const noexcept { return budget_ != nullptr; }
  std::size_t used() const noexcept { return used_; }
  // Bytes of the budget that no account pays for. Any thread changes them. Null without a budget.
  std::shared_ptr<std::atomic<std::size_t>> abandoned() const noexcept {
    return budget_ == nullptr ? nullptr : budget_->abandoned_;
  }
  // False, without an effect, if the connection's share, the peer's part or the loop's budget has not enough left.
  bool acquire(std::size_t bytes) noexcept {
    if (budget_ == nullptr) return true;
    if (!has_left(bytes) && !updates_leave(bytes)) return false;
    acquire_always(bytes);
    return true;
  }
  // For memory that is held already and has another bound. May exceed the limits, so that later requests are refused.
  void acquire_always(std::size_t bytes) noexcept {
    if (budget_ == nullptr) return;
    used_ += bytes;
    if (peer_ != nullptr) peer_->used += bytes;
    budget_->used_.store(budget_->charged() + bytes, std::memory_order_relaxed);
  }
  void release(std::size_t bytes) noexcept {
    if (budget_ == nullptr) return;
    used_ -= bytes;
    if (peer_ != nullptr) peer_->used -= bytes;
    budget_->used_.store(budget_->charged() - bytes, std::memory_order_relaxed);
  }

  // Messages that wait while their connection is not read may exceed the limits by as much again. False if they do.
  bool begin_unread(std::size_t bytes) noexcept;
  void end_unread(std::size_t bytes) noexcept;

  // Sets the memory of messages that have not arrived completely. False, without an effect, if not enough is left.
  bool set_arriving(std::size_t bytes) noexcept {
    if (bytes > arriving_ && !acquire(bytes - arriving_)) return false;
    if (bytes < arriving_) release(arriving_ - bytes);
    arriving_ = bytes;
    return true;
  }
  void set_arriving_always(std::size_t bytes) noexcept {
    if (set_arriving(bytes)) return;
    acquire_always(bytes - std::exchange(arriving_, bytes));
  }
  std::size_t arriving() const noexcept { return arriving_; }
  // True if half of the budget is still free after `bytes` more. Then memory is allocated for a message as soon as it
  // is announced. Otherwise it is allocated in proportion to the bytes that have arrived.
  bool plenty(std::size_t bytes) const noexcept {
    return budget_ == nullptr || (fits(bytes, budget_->used(), budget_->bytes_max_ / 2) &&
                                  fits(bytes, used_, budget_->share_bytes_max_) && peer_fits(bytes));
  }

 private:
  friend class ReceiveCharge;
  static bool fits(std::size_t bytes, std::size_t used, std::size_t most) noexcept {
    return used <= most && bytes <= most - used;
  }
  bool has_left(std::size_t bytes) const noexcept {
    if (!fits(bytes, used_, budget_->share_bytes_max_)) return false;
    return (fits(bytes, budget_->used(), budget_->bytes_max_) && peer_fits(bytes)) || fits(bytes, used_, reserve_bytes);
  }
  bool updates_leave(std::size_t bytes) noexcept;  // has_left() after update_lagging().
  bool peer_fits(std::size_t bytes) const noexcept {
    return peer_ == nullptr || fits(bytes, peer_->used, budget_->peer_bytes_max_);
  }

  // A block that several charges share. It is charged once.
  struct KeptBlock : PooledFrame {
    ReceiveAccount& account;
    const Block* block;
    std::size_t bytes;
    std::size_t charges = 1;
    KeptBlock(ReceiveAccount& owner, const Block* kept, std::size_t size) noexcept
        : account(owner), block(kept), bytes(size) {}
  };

  ReceiveBudget* const budget_;
  ReceivePeer* const peer_;
  std::size_t used_ = 0;
  std::size_t arriving_ = 0;
  // Messages of one block arrive one after another, so only the newest block is compared.
  KeptBlock* newest_ = nullptr;
};

// A charge for memory that is kept. Destroying it releases the charge.
class ReceiveCharge {
 public:
  ReceiveCharge() noexcept = default;
  ReceiveCharge(ReceiveCharge&& other) noexcept
      : account_(std::exchange(other.account_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        kept_(std::exchange(other.kept_, nullptr)) {}
  ReceiveCharge& operator=(ReceiveCharge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    std::swap(kept_, other.kept_);
    return *this;
  }
  ~ReceiveCharge() { reset(); }

  // Adds `bytes` to the charge. False if there is not enough left; nothing is charged then. With `always` it succeeds.
  bool add(ReceiveAccount& account, std::size_t bytes, bool always = false) noexcept {
    if (always) {
      account.acquire_always(bytes);
    } else if (!account.acquire(bytes)) {
      return false;
    }
    account_ = &account;
    bytes_ += bytes;
    return true;
  }
  // Charges the block of `buffer`, which is usually larger than the buffer. Further charges for the same block cost
  // nothing. Called once. False if there is not enough left. With `always` it succeeds.
  bool keep(ReceiveAccount& account, const Buffer& buffer, bool always = false) {
    if (!account.bounded() || buffer.block() == nullptr) return true;
    return keep_block(account, buffer, always);
  }
  void reset() noexcept {
    if (account_ != nullptr) std::exchange(account_, nullptr)->release(std::exchange(bytes_, 0));
    if (ReceiveAccount::KeptBlock* const kept = std::exchange(kept_, nullptr);
        kept != nullptr && --kept->charges == 0) {
      release_block(kept);
    }
  }

 private:
  bool keep_block(ReceiveAccount& account, const Buffer& buffer, bool always);
  static void release_block(ReceiveAccount::KeptBlock* kept) noexcept;

  ReceiveAccount* account_ = nullptr;
  std::size_t bytes_ = 0;
  ReceiveAccount::KeptBlock* kept_ = nullptr;
};

// Charges the memory of decoded arguments. Destroying it releases the charge.
class DecodeCharge final : public codec::DecodeBudget {
 public:
  explicit DecodeCharge(ReceiveAccount* account) noexcept : account_(account) {}
  DecodeCharge(DecodeCharge&&) noexcept = default;
  bool acquire(std::size_t bytes) noexcept override { return account_ == nullptr || charge_.add(*account_, bytes); }

 private:
  ReceiveAccount* account_;
  ReceiveCharge charge_;
};

}  // namespace hawser::detail
