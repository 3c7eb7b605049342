#include "engine.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

namespace hawser::python {
namespace {

std::atomic<std::uint64_t> generation{0};

struct Shared {
  std::mutex mutex;
  std::shared_ptr<Engine> engine;
  std::vector<std::weak_ptr<EngineUser>> users;
};
// Never destroyed: objects of Python may be destroyed after everything else.
Shared* shared = new Shared();

// The parent's threads do not exist in the child, so the parent's objects are left as they are.
const int registered = pthread_atfork(nullptr, nullptr, [] {
  generation.fetch_add(1);
  shared = new Shared();
});

}  // namespace

static_assert(sizeof(sigset_t) <= 128);

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  std::memcpy(saved_, &saved, sizeof(saved));
}
SignalsBlocked::~SignalsBlocked() {
  sigset_t saved;
  std::memcpy(&saved, saved_, sizeof(saved));
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
}

std::uint64_t process_generation() noexcept {
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

std::shared_ptr<Engine> Engine::get() {
  const std::lock_guard lock(shared->mutex);
  if (shared->engine == nullptr) {
    auto engine = std::make_shared<Engine>();
    const SignalsBlocked blocked;
    engine->loops_ = BackgroundLoops::start();
    shared->engine = std::move(engine);
  }
  return shared->engine;
}

void Engine::add(const std::shared_ptr<EngineUser>& user) {
  const std::lock_guard lock(shared->mutex);
  std::erase_if(shared->users, [](const std::weak_ptr<EngineUser>& one) { return one.expired(); });
  shared->users.push_back(user);
}

void Engine::shut_down() noexcept {
  std::vector<std::weak_ptr<EngineUser>> users;
  std::shared_ptr<Engine> engine;
  {
    const std::lock_guard lock(shared->mutex);
    users.swap(shared->users);
    engine = std::move(shared->engine);
  }
  for (const std::weak_ptr<EngineUser>& one : users) {
    if (const std::shared_ptr<EngineUser> user = one.lock()) user->abort();
  }
  if (engine != nullptr) engine->loops_.reset();
}

}  // namespace hawser::python
