#pragma once

#include <sys/epoll.h>

#include <condition_variable>
#include <mutex>
#include <span>

#include "hawser/time.h"

struct io_uring;

// The functions in which threads of this library wait until there is work. Nothing else waits there, so that a profile
// of waits can separate idle threads by the functions of their stacks.
namespace hawser::exec {

// Wait for events, for completions, and for work of an offload thread, at most `timeout`. The first one returns what
// epoll_wait() does; it clears `precise` if the system has no epoll_pwait2(), so that it is not called in vain again.
int sleep_in_epoll(int epoll, std::span<epoll_event> events, Duration timeout, bool& precise) noexcept;
void sleep_in_ring(io_uring* ring, Duration timeout) noexcept;
void sleep_until_work(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Duration timeout);

// The beginnings of these functions.
std::span<const void* const> idle_functions() noexcept;

}  // namespace hawser::exec
