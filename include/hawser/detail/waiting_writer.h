#pragma once

namespace hawser::detail {

// A writer that waits until the backlog of its connection has room. Leaves its list when it is destroyed.
class WaitingWriter {
 public:
  WaitingWriter() noexcept = default;
  WaitingWriter(const WaitingWriter&) = delete;
  WaitingWriter& operator=(const WaitingWriter&) = delete;
  ~WaitingWriter() { unlink(); }

  bool linked() const noexcept { return next_ != this; }
  // Appends this to the list whose anchor is `list`.
  void link(WaitingWriter& list) noexcept {
    unlink();
    next_ = &list;
    previous_ = list.previous_;
    previous_->next_ = this;
    list.previous_ = this;
  }
  void unlink() noexcept {
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = this;
  }
  WaitingWriter* next() const noexcept { return next_; }
  // Moves all elements of the list `from` to the end of this list, in order.
  void take_all(WaitingWriter& from) noexcept {
    while (from.linked()) from.next_->link(*this);
  }

 private:
  WaitingWriter* next_ = this;
  WaitingWriter* previous_ = this;
};

}  // namespace hawser::detail
