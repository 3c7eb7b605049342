#include "hawser/embedded_loop.h"

#include <utility>

#include "exec/epoll_poller.h"
#include "exec/loop_work.h"

namespace hawser {
namespace {

LoopOptions embedded_options(LoopOptions options) {
  options.wait = Wait::event;
  options.poller = PollerKind::epoll;
  return options;
}

}  // namespace

EmbeddedLoop::EmbeddedLoop(LoopOptions options)
    : EmbeddedLoop(std::make_unique<exec::EpollPoller>(), std::move(options)) {}

EmbeddedLoop::EmbeddedLoop(std::unique_ptr<exec::EpollPoller> poller, LoopOptions options)
    : descriptor_(poller->descriptor()), loop_(std::move(poller), embedded_options(std::move(options))) {
  loop_.poller().wake();  // The descriptor asks for the first poll_once().
}

Duration EmbeddedLoop::poll_once() { return detail::LoopWork::run_ready(loop_, ticks_max); }

}  // namespace hawser
