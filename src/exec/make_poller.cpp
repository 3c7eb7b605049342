#include "exec/make_poller.h"

#include "exec/epoll_poller.h"
#include "exec/io_uring_poller.h"

namespace hawser::exec {
namespace {

// Whether `automatic` selects io_uring where the kernel has it. It selects epoll until measurements show an advantage
// of io_uring.
constexpr bool automatic_is_io_uring = false;

}  // namespace

std::unique_ptr<Poller> make_poller(const LoopOptions& options) {
  const bool asked = options.poller == PollerKind::io_uring;
  if (asked || (options.poller == PollerKind::automatic && automatic_is_io_uring)) {
    Result<std::unique_ptr<Poller>> poller = IoUringPoller::make();
    if (poller) return std::move(*poller);
    if (options.log) {
      options.log(asked ? LogLevel::warning : LogLevel::info, "exec", poller.error().text + "; using epoll instead");
    }
  }
  return std::make_unique<EpollPoller>();
}

}  // namespace hawser::exec
