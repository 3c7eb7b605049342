#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hawser/blocking_client.h"
#include "hawser/hawser.h"
#include "tests/testing.h"

namespace hawser::blocking_test {

using namespace testing_tools;

inline std::string_view echo(std::string_view text) { return text; }
inline int add(int a, int b) { return a + b; }
inline Result<void> refuse(int code) { return std::unexpected(Error::application(code, "refused")); }
inline Task<void> count(int end, Writer<int> writer) {
  for (int i = 0; i < end; ++i) {
    auto written = co_await writer.write(i);
    if (!written) co_return;
  }
}

// A server with a handler that answers when release() is called or its call is cancelled.
struct Gate {
  Task<int> wait(Context& context) {
    waiting.fetch_add(1);
    waiting.notify_all();
    while (!open.load() && !context.token().stop_requested()) {
      co_await context.loop().sleep(1ms);
    }
    if (!open.load()) {
      cancelled.fetch_add(1);
      // No reply may arrive before the caller's own timer ends the call.
      while (!open.load() && !context.stopping().stop_requested()) {
        co_await context.loop().sleep(1ms);
      }
    }
    co_return 7;
  }
  void until_waiting(int calls) const {
    for (int now = waiting.load(); now < calls; now = waiting.load()) waiting.wait(now);
  }
  bool sees_cancelled(int calls) const {
    for (const auto end = std::chrono::steady_clock::now() + patience; cancelled.load() < calls;) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  std::atomic<int> waiting{0};
  std::atomic<int> cancelled{0};
  std::atomic<bool> open{false};
};

class Blocking : public ::testing::Test {
 protected:
  void SetUp() override { start("127.0.0.1:0"); }
  void TearDown() override { gate.open.store(true); }
  void start(std::string address) {
    server = std::make_unique<Server>(ServerOptions{.listen = std::move(address)});
    server->register_handler<echo, add, refuse, count>();
    server->register_handler<&Gate::wait>(&gate);
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  static BlockingOptions options() {
    BlockingOptions given;
    given.pool.client.call_timeout = patience;
    given.pool.client.transports.required = "stream";
    given.background.loop.log = no_log();
    return given;
  }
  std::unique_ptr<BlockingClient> client(BlockingOptions with = options()) const {
    return std::make_unique<BlockingClient>(server->address(), std::move(with));
  }

  Gate gate;
  std::unique_ptr<Server> server;
};

}  // namespace hawser::blocking_test
