#include "exec/make_poller.h"

#include <exception>

#include "base/kernel_random.h"
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

std::uint64_t seed_of(const Poller& poller) noexcept {
  if (const std::optional<std::uint64_t> given = poller.seed()) return *given;
  try {
    return kernel_random();
  } catch (const std::exception&) {
    // Without a generator, loops that begin at different times still differ.
    return static_cast<std::uint64_t>(poller.now().time_since_epoch().count());
  }
}

}  // namespace hawser::exec
