#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "tests/http/client_tools.h"

// For tests of HttpClientStream.
namespace hawser::http_client_test {

// Calls `serve` for one connection after another, on a thread of its own.
class HandServer {
 public:
  using Serve = std::function<void(RawSocket&, int)>;  // With the number of earlier connections.

  explicit HandServer(Serve serve) : serve_(std::move(serve)), thread_([this] { run(); }) {}
  ~HandServer() {
    stopping_.store(true);
    thread_.join();
  }
  std::string url(std::string_view path = "/") const { return "http://" + listener_.address() + std::string(path); }
  int connections() const { return connections_.load(); }

 private:
  void run() {
    while (!stopping_.load()) {
      RawSocket socket = listener_.accept_within(5ms);
      if (socket.fd() < 0) continue;
      const int number = connections_.fetch_add(1);
      serve_(socket, number);
    }
  }

  RawListener listener_;
  const Serve serve_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

// Sends a text to each client after its request, and waits until the client closes.
inline HandServer::Serve answers_with(std::string text, bool closes = false) {
  return [text = std::move(text), closes](RawSocket& socket, int) {
    socket.receive_text("\r\n\r\n");
    socket.send(as_bytes(text));
    if (!closes) socket.closed_by_peer();
  };
}

inline HttpClientRequest get_of(std::string url) {
  HttpClientRequest request;
  request.url = std::move(url);
  return request;
}
inline HttpClientRequest post_to(std::string url) {
  HttpClientRequest request;
  request.method = "POST";
  request.url = std::move(url);
  return request;
}

// Reads to the end. `arrived` has what came before an error.
inline Task<Result<std::string>> read_all(HttpClientStream& stream, std::string* arrived = nullptr) {
  std::string all;
  for (;;) {
    Result<std::string> part = co_await stream.read();
    if (!part) co_return part;
    if (part->empty()) co_return all;
    all += *part;
    if (arrived != nullptr) *arrived += *part;
  }
}

}  // namespace hawser::http_client_test
