#include "rpc/server/background_tasks.h"

#include <new>
#include <utility>

#include "base/log_line.h"
#include "hawser/detail/handler.h"

namespace hawser::rpc {

void BackgroundTasks::begin(std::unique_ptr<detail::BackgroundWork> work) {
  try {
    tasks_.spawn(run(std::move(work)));
  } catch (const std::bad_alloc&) {
    loop_.log(LogLevel::error, "rpc", "background work does not begin: out of memory");
  }
}

Task<void> BackgroundTasks::run(std::unique_ptr<detail::BackgroundWork> work) {
  struct Working {
    explicit Working(std::size_t& tasks) noexcept : count(tasks) { ++count; }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;
    ~Working() { --count; }
    std::size_t& count;
  };
  {
    const Working working(working_);
    const std::unique_ptr<detail::BackgroundWork> held = std::move(work);
    try {
      const Background background{.stopping = stopping_.get_token(), .token = grace_over_.get_token()};
      co_await held->begin(background);
    } catch (...) {
      log_line(loop_.options().log, LogLevel::error, "rpc",
               [] { return "background work threw an exception: " + detail::exception_text(); });
    }
  }
  owner_.on_background_end();
}

}  // namespace hawser::rpc
