// A program of libuv whose one thread serves methods and calls them.
#include <uv.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>

#include "hawser/embedded_loop.h"
#include "hawser/hawser.h"

using namespace std::chrono_literals;

std::string greet(std::string_view name) { return "hello, " + std::string(name); }

// Runs an EmbeddedLoop within a uv_loop_t.
class HawserInLibuv {
 public:
  explicit HawserInLibuv(uv_loop_t* uv) {
    readable_.data = timer_.data = this;
    uv_timer_init(uv, &timer_);
    uv_poll_init(uv, &readable_, hawser_.descriptor());
    uv_poll_start(&readable_, UV_READABLE, [](uv_poll_t* handle, int, int) { self(handle->data)->poll(); });
  }

  hawser::Loop& loop() { return hawser_.loop(); }
  // The uv_loop_t may end now. This object must exist until it has.
  void stop() {
    stopped_ = true;
    uv_close(reinterpret_cast<uv_handle_t*>(&readable_), nullptr);
    uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  }

 private:
  static HawserInLibuv* self(void* data) { return static_cast<HawserInLibuv*>(data); }
  void poll() {
    const hawser::Duration next = hawser_.poll_once();
    if (stopped_) return;
    if (next == hawser::forever) return void(uv_timer_stop(&timer_));
    // libuv counts milliseconds from the begin of its turn.
    uv_update_time(timer_.loop);
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next);
    uv_timer_start(
        &timer_, [](uv_timer_t* handle) { self(handle->data)->poll(); }, static_cast<std::uint64_t>(wait.count()), 0);
  }

  hawser::EmbeddedLoop hawser_;
  uv_poll_t readable_;
  uv_timer_t timer_;
  bool stopped_ = false;
};

hawser::Task<void> talk(std::string address, HawserInLibuv& embedded, int& failures) {
  {
    hawser::Client client;
    const hawser::Result<void> connected = co_await client.connect(address);
    if (!connected) std::cerr << connected.error().describe() << "\n";
    for (const char* name : {"libuv", "Node.js", "Julia"}) {
      const hawser::Result<std::string> reply = co_await client.call<greet>(name);
      std::cout << (reply ? *reply : reply.error().describe()) << "\n";
      if (!reply) ++failures;
      co_await embedded.loop().sleep(10ms);
    }
  }
  embedded.stop();
}

int main() {
  uv_loop_t uv;
  uv_loop_init(&uv);
  int failures = 0;
  {
    HawserInLibuv embedded(&uv);
    hawser::Server server(embedded.loop());
    server.register_handler<greet>();
    hawser::Scope scope;
    embedded.loop().post([&] {
      if (const hawser::Result<void> started = server.start(); !started) {
        std::cerr << started.error().describe() << "\n";
        ++failures;
        return embedded.stop();
      }
      scope.spawn(talk(server.address(), embedded, failures));
    });

    // Something else that this thread does.
    uv_timer_t other;
    uv_timer_init(&uv, &other);
    uv_timer_start(
        &other,
        [](uv_timer_t* timer) {
          std::cout << "a timer of libuv\n";
          uv_close(reinterpret_cast<uv_handle_t*>(timer), nullptr);
        },
        5, 0);

    uv_run(&uv, UV_RUN_DEFAULT);
  }
  uv_loop_close(&uv);
  return failures == 0 ? 0 : 1;
}
