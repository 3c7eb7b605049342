#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "tests/raw_peer.h"

// For tests of HttpClient.
namespace hawser::http_client_test {

using namespace testing_tools;

// A server that answers the n-th request of all its connections with the n-th text. An empty text ends the connection
// without an answer. A connection that has been answered stays open unless the text ends with `closes`.
class ScriptedServer {
 public:
  static constexpr std::string_view closes = "\r\nCLOSE";

  explicit ScriptedServer(std::vector<std::string> answers)
      : answers_(std::move(answers)), thread_([this] { serve(); }) {}
  ~ScriptedServer() {
    stopping_.store(true);
    thread_.join();
  }
  std::string url(std::string_view path = "/") const { return "http://" + listener_.address() + std::string(path); }
  int connections() const { return connections_.load(); }

 private:
  void serve() {
    std::size_t next = 0;
    while (!stopping_.load()) {
      RawSocket socket = listener_.accept_within(20ms);
      if (socket.fd() < 0) continue;
      connections_.fetch_add(1);
      bool open = true;
      while (!stopping_.load() && next < answers_.size()) {
        if (socket.receive_text("\r\n\r\n").empty()) break;
        std::string answer = answers_[next++];
        open = !answer.empty() && !answer.ends_with(closes);
        if (answer.ends_with(closes)) answer.resize(answer.size() - closes.size());
        socket.send(as_bytes(answer));
        if (!open) break;
      }
      if (open && next == answers_.size()) kept_.push_back(std::move(socket));
    }
  }

  RawListener listener_;
  const std::vector<std::string> answers_;
  std::vector<RawSocket> kept_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

inline std::string ok(std::string_view body, std::string_view fields = "") {
  return "HTTP/1.1 200 OK\r\n" + std::string(fields) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

inline void with_client(const std::function<Task<void>(HttpClient&)>& work, HttpClientOptions options = {}) {
  Loop loop({.log = no_log()});
  HttpClient client(loop, options);
  loop.run([](HttpClient& used, const std::function<Task<void>(HttpClient&)>& run) -> Task<void> {
    co_await run(used);
  }(client, work));
}

}  // namespace hawser::http_client_test
