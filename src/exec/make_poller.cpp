#include "exec/make_poller.h"

#include <string>

#include "exec/epoll_poller.h"

namespace hawser::exec {

std::unique_ptr<Poller> make_poller(const LoopOptions&) { return std::make_unique<EpollPoller>(); }

}  // namespace hawser::exec
