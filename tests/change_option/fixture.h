#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/change_option.h"
#include "hawser/hawser.h"
#include "hawser/pages.h"
#include "tests/raw_peer.h"

// A server whose options tests change while it runs.
namespace hawser::change_option_test {

using namespace testing_tools;
using testing::HasSubstr;
using testing::Not;

inline constexpr unsigned loops = 3;

inline std::string echo(std::string text) { return text; }
inline std::string fails(std::string text) { throw std::runtime_error("secret " + text); }
inline std::string blocks(std::string text) {
  std::this_thread::sleep_for(20ms);
  return text;
}
inline Task<std::string> wait(Context& context, std::string text) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return text;
}

template <auto function>
Octets request(std::uint16_t slot, std::string_view text) {
  using Facts = detail::MethodFacts<function>;
  const RawHeader header{.kind = wire::FrameKind::request,
                         .call = wire::CallId(slot, 1).number(),
                         .method = Facts::id,
                         .signature = Facts::signature};
  return message(header, text_body(text));
}

class Lines {
 public:
  LogSink sink() {
    return [this](LogLevel, std::string_view component, std::string_view text) {
      const std::lock_guard guard(lock_);
      lines_.push_back(std::string(component) + ": " + std::string(text));
    };
  }
  std::size_t count(std::string_view part) const {
    const std::lock_guard guard(lock_);
    return static_cast<std::size_t>(
        std::ranges::count_if(lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

 private:
  mutable std::mutex lock_;
  std::vector<std::string> lines_;
};

class ChangeOption : public ::testing::Test {
 protected:
  static constexpr const char* token = "the token of a test";

  void start(ServerOptions options = {}, PagesOptions pages = {}) {
    options.threads = loops;
    options.loop.log = lines.sink();
    server = std::make_unique<Server>(options);
    server->register_handler<echo, fails, blocks, wait>();
    for (OwnOption& one : own) add_option(*server, one);
    if (pages.change_token.empty()) pages.change_token = token;
    enable_pages(*server, std::move(pages));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // One connection on each loop.
  std::vector<RawSocket> on_each_loop() const {
    std::vector<RawSocket> peers;
    for (unsigned i = 0; i < loops; ++i) peers.push_back(RawSocket::greeted(server->address()));
    return peers;
  }
  void change(std::string_view name, std::string_view value) const {
    const Result<void> changed = change_option(*server, name, value, "a test");
    ASSERT_TRUE(changed) << error_of(changed);
    // Each loop has run what was posted to it before.
    for (Loop* const loop : server->loops()) {
      auto ran = std::make_shared<std::atomic<bool>>(false);
      loop->post([ran] { ran->store(true); });
      ASSERT_TRUE(soon([&] { return ran->load(); }));
    }
  }
  std::string value_of(std::string_view name) const {
    for (const OptionState& one : changeable_options(*server)) {
      if (one.name == name) return one.value;
    }
    return "(none)";
  }
  std::string ask(std::string_view method, std::string_view path, std::string_view fields = "",
                  std::string_view body = "") const {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(
        as_bytes(std::string(method) + " " + std::string(path) +
                 " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
                 "\r\n" + (method == "POST" ? "Hawser-Token: " + std::string(token) + "\r\n" : std::string()) +
                 std::string(fields) + "\r\n" + std::string(body)));
    return socket.receive_all();
  }

  Lines lines;
  std::vector<OwnOption> own;
  std::unique_ptr<Server> server;
};

}  // namespace hawser::change_option_test
