#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/raw_peer.h"

namespace hawser::testing_tools {

// Passes connections on to a server, and keeps all bytes of both directions.
class WireTap {
 public:
  explicit WireTap(std::string to) : to_(std::move(to)), thread_([this](const std::stop_token& stop) { run(stop); }) {}
  const std::string& address() const { return listener_.address(); }
  // Ends the relay.
  const std::vector<Octets>& heard() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    return heard_;
  }

 private:
  struct Direction {
    int from = -1;
    int to = -1;
    std::size_t heard = 0;
    bool ended = false;
  };
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (RawSocket client = listener_.accept_within(std::chrono::milliseconds(0)); client.fd() >= 0) {
        RawSocket server = RawSocket::connected_to(to_);
        for (const auto& [from, to] : {std::pair(client.fd(), server.fd()), std::pair(server.fd(), client.fd())}) {
          directions_.push_back({.from = from, .to = to, .heard = heard_.size()});
          heard_.emplace_back();
        }
        sockets_.push_back(std::move(client));
        sockets_.push_back(std::move(server));
      }
      bool idle = true;
      for (Direction& one : directions_) idle &= !pass(one);
      if (idle) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Returns true if something was passed on.
  bool pass(Direction& one) {
    pollfd ready{one.from, POLLIN, 0};
    if (one.ended || ::poll(&ready, 1, 0) <= 0) return false;
    std::byte scrap[4096];
    const ssize_t size = ::recv(one.from, scrap, sizeof scrap, MSG_DONTWAIT);
    if (size <= 0) {
      one.ended = true;
      ::shutdown(one.to, SHUT_WR);
      return true;
    }
    const Bytes bytes(scrap, static_cast<std::size_t>(size));
    heard_[one.heard].insert(heard_[one.heard].end(), bytes.begin(), bytes.end());
    for (Bytes rest = bytes; !rest.empty();) {
      pollfd room{one.to, POLLOUT, 0};
      ::poll(&room, 1, 1000);
      const ssize_t sent = ::send(one.to, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) break;
      if (sent > 0) rest = rest.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }

  RawListener listener_;
  const std::string to_;
  std::vector<RawSocket> sockets_;
  std::vector<Direction> directions_;
  std::vector<Octets> heard_;
  std::jthread thread_;
};

}  // namespace hawser::testing_tools
