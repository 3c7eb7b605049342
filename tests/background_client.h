#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::testing_tools {

inline std::string_view echo(std::string_view text) { return text; }

// A well-behaved client of a server that offers echo(). It calls the server without a pause on its own thread, and
// counts errors.
class BackgroundClient {
 public:
  explicit BackgroundClient(std::string address) : thread_([this, to = std::move(address)] { sync_wait(work(to)); }) {}
  BackgroundClient(const BackgroundClient&) = delete;
  BackgroundClient& operator=(const BackgroundClient&) = delete;
  ~BackgroundClient() { stop(); }

  // Waits until `count` more calls have ended, successfully or not. Returns false if they do not end in time.
  bool sees_calls(std::uint64_t count) {
    const std::uint64_t until = calls_.load() + count;
    for (const auto end = std::chrono::steady_clock::now() + patience; calls_.load() < until;) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  void stop() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  std::uint64_t calls() const { return calls_.load(); }
  // Returns the first error; empty if there was none.
  std::string complaint() {
    const std::lock_guard lock(mutex_);
    return complaint_;
  }

 private:
  Task<void> work(std::string address) {
    // The limit of all waits of tests: a call that never ends is counted as failed.
    Client client({.connect_timeout = patience, .call_timeout = patience});
    auto connected = co_await client.connect(address);
    if (!connected) co_return complain(error_of(connected));
    const std::string large = text_of(40'000);
    for (std::uint64_t i = 0; !stopping_.load(); ++i) {
      const std::string_view text = i % 16 == 0 ? std::string_view(large) : std::string_view("hello");
      auto reply = co_await client.call<echo>(text);
      if (!reply) {
        complain(error_of(reply));
      } else if (*reply != text) {
        complain("a wrong reply");
      }
      calls_.fetch_add(1);
      if (!reply) co_return;
    }
  }
  void complain(std::string text) {
    const std::lock_guard lock(mutex_);
    if (complaint_.empty()) complaint_ = std::move(text);
  }

  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> calls_{0};
  std::mutex mutex_;
  std::string complaint_;
  std::thread thread_;
};

}  // namespace hawser::testing_tools
