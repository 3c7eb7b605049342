#pragma once

#include <exception>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "hawser/background_loops.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/task.h"

namespace hawser::block {

// A loop on a thread of its own, whose work another thread waits for.
class WaitedLoop {
 public:
  explicit WaitedLoop(LoopOptions options)
      : loops_(BackgroundLoops::start({.threads = 1, .loop = std::move(options)})) {}

  Loop& loop() const noexcept { return loops_->loop(0); }

  // Runs `make()`, which makes a task, on the loop and waits for the task's end. Not on the loop.
  template <class Make>
  auto run(Make make) {
    using Value = typename decltype(make())::value_type;
    auto promise = std::make_shared<std::promise<Value>>();
    std::future<Value> ended = promise->get_future();
    loop().post([this, &make, promise] {
      tasks_.spawn([](Make& of, std::shared_ptr<std::promise<Value>> done) -> Task<void> {
        try {
          if constexpr (std::is_void_v<Value>) {
            co_await of();
            done->set_value();
          } else {
            done->set_value(co_await of());
          }
        } catch (...) {
          done->set_exception(std::current_exception());
        }
      }(make, promise));
    });
    return ended.get();
  }

 private:
  Scope tasks_;  // Used by the loop's thread only.
  std::shared_ptr<BackgroundLoops> loops_;
};

}  // namespace hawser::block
