#include "block/nbd/front.h"

#include <memory>
#include <optional>
#include <utility>

#include "block/waited_loop.h"
#include "hawser/transport/protect.h"

namespace hawser::block::nbd {

struct Front::State {
  explicit State(NbdListening given) : listening(std::move(given)) {}

  NbdListening listening;
  std::optional<WaitedLoop> thread;
  // Used by the loop's thread only, from here on.
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
  state->thread.emplace(std::move(options.loop));
  State& self = *state;
  std::unique_ptr<Front> front(new Front(std::move(state)));
  const Result<void> started = self.thread->run([&]() -> Task<Result<void>> {
    Loop& loop = self.thread->loop();
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
  if (!state_->thread) return;
  state_->thread->run([&]() -> Task<void> {
    if (state_->acceptor) co_await state_->acceptor->stop(grace);
    state_->acceptor.reset();
    state_->exports.reset();
  });
  state_->thread.reset();
}

}  // namespace hawser::block::nbd
