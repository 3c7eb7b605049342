#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace hawser::transport {

// Decides when MessageSink::on_drained() is due: when the backlog has been above the mark and has fallen to half of it.
class BacklogWatermark {
 public:
  std::size_t mark() const noexcept { return mark_; }
  // See Connection::set_high_watermark().
  void set(std::size_t bytes, std::size_t backlog) noexcept {
    mark_ = bytes;
    passed_ = backlog > bytes;
  }
  // Must be called when bytes have been committed. The application may see the backlog above the mark now and wait for
  // on_drained(), even if the end of the tick sends everything.
  void on_commit(std::size_t backlog) noexcept {
    if (backlog > mark_) [[unlikely]]
      passed_ = true;
  }
  // Returns true if on_drained() must be called once the backlog is low enough.
  bool passed() const noexcept { return passed_; }
  // Must be called when bytes have been sent. Returns true if on_drained() must be called now.
  [[nodiscard]] bool on_sent(std::size_t backlog) noexcept {
    return passed_ && backlog <= mark_ / 2 && std::exchange(passed_, false);
  }

 private:
  std::size_t mark_ = SIZE_MAX;
  bool passed_ = false;
};

}  // namespace hawser::transport
