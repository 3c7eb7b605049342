#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/background_loops.h"

// The threads of Hawser in this process.
namespace hawser::python {

// Blocks all signals on this thread while it exists, so that threads that begin meanwhile get none: Python handles
// signals on its main thread.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked();

 private:
  unsigned char saved_[128];
};

// Increases in each child that fork() makes.
std::uint64_t process_generation() noexcept;

// Something that must end before the threads do.
class EngineUser {
 public:
  virtual ~EngineUser() = default;
  // Ends everything at once, without the GIL. Called once, by shut_down().
  virtual void abort() noexcept = 0;
};

// The loop of the clients. Started by the first client.
class Engine {
 public:
  // The engine of this process. Throws std::system_error without threads.
  static std::shared_ptr<Engine> get();
  // Ends all users of this process and then the threads. For the end of the interpreter, without the GIL.
  static void shut_down() noexcept;

  Loop& loop() const noexcept { return loops_->loop(0); }

  static void add(const std::shared_ptr<EngineUser>& user);

 private:
  std::shared_ptr<BackgroundLoops> loops_;
};

}  // namespace hawser::python
