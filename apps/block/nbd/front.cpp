#include "block/nbd/front.h"

#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "hawser/background_loops.h"
#include "hawser/scope.h"
#include "hawser/transport/protect.h"

namespace hawser::block::nbd {

struct Front::State {
  explicit State(NbdListening given) : listening(std::move(given)) {}

  // Runs `make()`, which makes a task, on the loop and waits for the task's end.
  template <class Make>
  auto run(Make make) {
    using Value = typename decltype(make())::value_type;
    auto promise = std::make_shared<std::promise<Value>>();
    std::future<Value> ended = promise->get_future();
    loops->loop(0).post([this, &make, promise] {
      tasks->spawn([](Make& of, std::shared_ptr<std::promise<Value>> done) -> Task<void> {
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

  NbdListening listening;
  std::shared_ptr<BackgroundLoops> loops;
  // Used by the loop's thread only, from here on.
  std::unique_ptr<Scope> tasks = std::make_unique<Scope>();
  std::unique_ptr<Exports> exports;
  std::optional<Acceptor> acceptor;
};

Front::Front(std::unique_ptr<State> state) : state_(std::move(state)) {}

Front::~Front() { stop({}); }

const std::string& Front::address() const noexcept { return state_->listening.address(); }

Result<std::unique_ptr<Front>> Front::start(FrontOptions options, MakeExports make) {
  if (options.security) {
    if (const Result<void> prepared = transport::prepare(*options.security); !prepared) {
      return std::unexpected(prepared.error());
    }
  }
  Result<NbdListening> listening = NbdListening::open(options.listen);
  if (!listening) return std::unexpected(listening.error());
  auto state = std::make_unique<State>(std::move(*listening));
  state->loops = BackgroundLoops::start({.threads = 1, .loop = std::move(options.loop)});
  State& self = *state;
  std::unique_ptr<Front> front(new Front(std::move(state)));
  const Result<void> started = self.run([&]() -> Task<Result<void>> {
    Loop& loop = self.loops->loop(0);
    self.exports = make(loop);
    const Result<std::vector<std::string>> names = co_await self.exports->names({});
    if (!names) co_return std::unexpected(names.error());
    self.acceptor.emplace(loop, self.listening, *self.exports, options.limits, options.security);
    co_return Result<void>{};
  });
  if (!started) return std::unexpected(started.error());
  return front;
}

void Front::stop(Duration grace) {
  if (!state_->loops) return;
  state_->run([&]() -> Task<void> {
    if (state_->acceptor) co_await state_->acceptor->stop(grace);
    state_->acceptor.reset();
    state_->exports.reset();
  });
  state_->loops.reset();
}

}  // namespace hawser::block::nbd
