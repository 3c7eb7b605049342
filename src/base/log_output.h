#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "hawser/error.h"

namespace hawser {

// Writes `bytes` and returns how many the descriptor took without blocking; errno says why it took no more. Raises no
// signal. A regular file takes all of them, and blocks as long as its disk does. On kernels before Linux 6.5 a write to
// a pipe may block if another process fills the pipe at the same moment.
std::size_t write_ready(int descriptor, std::string_view bytes) noexcept;

// Lines to a descriptor of the application, such as standard error. A line that the descriptor does not take at once is
// lost. Raises no signal. Any thread.
class LineOutput {
 public:
  explicit LineOutput(int descriptor) noexcept : descriptor_(descriptor) {}

  // `line` has its end. `notice_of(n)` makes the line that says that n lines were lost; it comes before the next line
  // that the descriptor takes.
  template <class NoticeOf>
  void write(std::string_view line, NoticeOf notice_of) {
    if (const std::uint64_t lost = lost_.exchange(0, std::memory_order_relaxed); lost != 0) {
      lost_.fetch_add(put(notice_of(lost)) ? 0 : lost, std::memory_order_relaxed);
    }
    if (!put(line)) lost_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  bool put(std::string_view line) noexcept;

  const int descriptor_;
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<bool> within_line_{false};  // The descriptor has taken a part of the last line.
};

// Sends datagrams to a Unix socket, without blocking. Any thread.
class DatagramSender {
 public:
  // `invalid_argument`: the path is empty or longer than an address. `unavailable`: nothing listens there.
  static Result<DatagramSender> to(std::string path);
  // False if the receiver is absent, its queue is full, or the datagram is too long for it. A receiver that has been
  // replaced at the path receives again.
  bool send(std::string_view datagram) const noexcept;

 private:
  DatagramSender(Descriptor socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}

  Descriptor socket_;
  std::string path_;
};

}  // namespace hawser
