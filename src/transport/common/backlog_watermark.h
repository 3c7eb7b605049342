#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace hawser::transport {

// Decides when MessageSink::on_drained() is due: when the backlog has been above the mark and falls to half of it.
class BacklogWatermark {
 public:
  // As Connection::set_high_watermark().
  void set(std::size_t bytes, std::size_t backlog) noexcept {
    mark_ = bytes;
    passed_ = backlog > bytes;
  }
  // Bytes have been committed. Whoever sees the backlog above the mark now waits for on_drained(), even if the end of
  // the tick sends all of it.
  void on_commit(std::size_t backlog) noexcept {
    if (backlog > mark_) [[unlikely]]
      passed_ = true;
  }
  // on_drained() is to be called once the backlog is low enough.
  bool passed() const noexcept { return passed_; }
  // Bytes have been sent. True if on_drained() is due now.
  [[nodiscard]] bool on_sent(std::size_t backlog) noexcept {
    return passed_ && backlog <= mark_ / 2 && std::exchange(passed_, false);
  }

 private:
  std::size_t mark_ = SIZE_MAX;
  bool passed_ = false;
};

}  // namespace hawser::transport
