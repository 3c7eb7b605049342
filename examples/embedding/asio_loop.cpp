// A program of Asio that calls a server of Hawser on Asio's own thread. `asio` is Boost.Asio or the one without Boost.
#include <asio.hpp>
#include <chrono>
#include <iostream>
#include <string>
#include <string_view>

#include "hawser/embedded_loop.h"
#include "hawser/hawser.h"

using namespace std::chrono_literals;

std::string greet(std::string_view name) { return "hello, " + std::string(name); }

// Runs an EmbeddedLoop within an io_context.
class HawserInAsio {
 public:
  explicit HawserInAsio(asio::io_context& io) : readable_(io, hawser_.descriptor()), timer_(io) {
    wait_until_readable();
  }
  ~HawserInAsio() { readable_.release(); }  // The descriptor belongs to the EmbeddedLoop.

  hawser::Loop& loop() { return hawser_.loop(); }
  // The io_context may run out of work now.
  void stop() {
    readable_.cancel();
    timer_.cancel();
    stopped_ = true;
  }

 private:
  void wait_until_readable() {
    readable_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const asio::error_code& error) {
      if (error || stopped_) return;
      poll();
      if (!stopped_) wait_until_readable();
    });
  }
  void poll() {
    const hawser::Duration next = hawser_.poll_once();
    if (stopped_ || next == hawser::forever) return void(timer_.cancel());
    timer_.expires_after(next);
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error && !stopped_) poll();
    });
  }

  hawser::EmbeddedLoop hawser_;
  asio::posix::stream_descriptor readable_;
  asio::steady_timer timer_;
  bool stopped_ = false;
};

hawser::Task<void> talk(std::string address, HawserInAsio& embedded, int& failures) {
  {
    hawser::Client client;
    const hawser::Result<void> connected = co_await client.connect(address);
    if (!connected) std::cerr << connected.error().describe() << "\n";
    for (const char* name : {"Asio", "libuv", "Qt"}) {
      const hawser::Result<std::string> reply = co_await client.call<greet>(name);
      std::cout << (reply ? *reply : reply.error().describe()) << "\n";
      if (!reply) ++failures;
      co_await embedded.loop().sleep(10ms);
    }
  }
  embedded.stop();
}

int main() {
  hawser::Server server;
  server.register_handler<greet>();
  if (const hawser::Result<void> started = server.start(); !started) {
    std::cerr << started.error().describe() << "\n";
    return 1;
  }
  asio::io_context io;
  HawserInAsio embedded(io);
  hawser::Scope scope;
  int failures = 0;
  embedded.loop().post([&] { scope.spawn(talk(server.address(), embedded, failures)); });

  // Something else that this thread does.
  asio::steady_timer other(io, 5ms);
  other.async_wait([](const asio::error_code&) { std::cout << "a timer of Asio\n"; });

  io.run();
  return failures == 0 ? 0 : 1;
}
