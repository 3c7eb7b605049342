#pragma once

#include <algorithm>
#include <cstddef>

#include "hawser/time.h"
#include "hawser/transfer_batch.h"

namespace hawser {

// A transfer that waits in a TransferSchedule, or of which a part waits.
template <class Transfer>
class ScheduledTransfer {
 public:
  TransferPriority priority = TransferPriority::interactive;
  Time deadline = Time::max();  // Orders bulk transfers.

  bool scheduled() const noexcept { return scheduled_; }

 private:
  template <class>
  friend class TransferSchedule;
  Transfer* next_ = nullptr;
  bool scheduled_ = false;
};

// The order in which transfers are posted piece by piece: interactive ones in the order of add(), before bulk ones, of
// which the one with the earliest deadline is first. While both classes wait, bulk transfers get at least one part in
// `bulk_share` of the bytes. Transfer derives from ScheduledTransfer<Transfer>. No lock, no memory of its own.
template <class Transfer>
class TransferSchedule {
 public:
  static constexpr std::ptrdiff_t bulk_share = 20;
  // A small piece costs the connection as much as one of this size.
  static constexpr std::size_t piece_bytes_min = 4096;
  // Bulk transfers get their share in pieces of about this size.
  static constexpr std::ptrdiff_t owed_bytes_max = std::ptrdiff_t{64} << 10;

  bool empty() const noexcept { return interactive_.first == nullptr && bulk_.first == nullptr; }
  bool waiting(TransferPriority priority) const noexcept { return list(priority).first != nullptr; }

  void add(Transfer& transfer) noexcept {
    List& queue = list(transfer.priority);
    transfer.scheduled_ = true;
    Transfer* before = queue.last;
    if (&queue == &bulk_ && before != nullptr && transfer.deadline < before->deadline) {
      before = nullptr;
      for (Transfer* one = queue.first; one->deadline <= transfer.deadline; one = one->next_) before = one;
    }
    Transfer*& link = before == nullptr ? queue.first : before->next_;
    transfer.next_ = link;
    link = &transfer;
    if (transfer.next_ == nullptr) queue.last = &transfer;
  }
  // Does nothing if the transfer does not wait.
  void remove(Transfer& transfer) noexcept {
    if (!transfer.scheduled_) return;
    transfer.scheduled_ = false;
    List& queue = list(transfer.priority);
    Transfer* before = nullptr;
    for (Transfer* one = queue.first; one != &transfer; one = one->next_) before = one;
    (before == nullptr ? queue.first : before->next_) = transfer.next_;
    if (queue.last == &transfer) queue.last = before;
    transfer.next_ = nullptr;
    if (interactive_.first == nullptr || bulk_.first == nullptr) owed_ = 0;
  }
  // The transfer of which the next piece is to be posted. The arguments say for which classes there is room. Null if
  // nothing waits for which there is room.
  Transfer* next(bool room_for_interactive, bool room_for_bulk) const noexcept {
    Transfer* const interactive = room_for_interactive ? interactive_.first : nullptr;
    Transfer* const bulk = room_for_bulk ? bulk_.first : nullptr;
    if (interactive == nullptr || (bulk != nullptr && owed_ >= owed_bytes_max)) return bulk;
    return interactive;
  }
  // A piece of a transfer has been posted.
  void posted(const Transfer& transfer, std::size_t bytes) noexcept {
    if (interactive_.first == nullptr || bulk_.first == nullptr) return;
    const auto counted = static_cast<std::ptrdiff_t>(std::max(bytes, piece_bytes_min));
    if (transfer.priority == TransferPriority::bulk) {
      owed_ = std::max(owed_ - counted, -2 * owed_bytes_max);
    } else {
      owed_ = std::min(owed_ + counted / (bulk_share - 1), 2 * owed_bytes_max);
    }
  }
  // Calls f(transfer) for each transfer that waits. `f` must not change the schedule.
  template <class F>
  void each(F f) const {
    for (const List* queue : {&interactive_, &bulk_}) {
      for (Transfer* one = queue->first; one != nullptr; one = one->next_) f(*one);
    }
  }
  // Forgets all transfers.
  void clear() noexcept {
    each([](Transfer& one) { one.scheduled_ = false; });
    interactive_ = bulk_ = {};
    owed_ = 0;
  }

 private:
  struct List {
    Transfer* first = nullptr;
    Transfer* last = nullptr;
  };
  List& list(TransferPriority priority) noexcept { return priority == TransferPriority::bulk ? bulk_ : interactive_; }
  const List& list(TransferPriority priority) const noexcept {
    return priority == TransferPriority::bulk ? bulk_ : interactive_;
  }

  List interactive_;
  List bulk_;
  std::ptrdiff_t owed_ = 0;  // Bytes that the bulk transfers lack of their share.
};

}  // namespace hawser
