#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/test/loop_testing.h"
#include "transport/tcp/tcp_stream.h"

namespace hawser::transport {

// Receives a stream's bytes into spaces of the size that the test selects.
struct TestSink final : StreamSink {
  MutableBytes receive_space() override {
    space.resize(space_bytes);
    return space;
  }
  void received(std::size_t bytes) override {
    EXPECT_FALSE(paused) << "received while paused";
    EXPECT_TRUE(ends.empty()) << "received after the end";
    if (bytes == 0) return;  // Nothing more is available for now.
    text.append(reinterpret_cast<const char*>(space.data()), bytes);
    if (on_received) on_received();
  }
  void sendable(std::size_t bytes) override {
    EXPECT_EQ(bytes, 0U) << "a socket takes nothing between two sends";
    ++sendables;
    if (on_sendable) on_sendable();
  }
  void broken(const Error& reason) override {
    EXPECT_TRUE(paused) << "otherwise ended() tells";
    breaks.push_back(reason);
  }
  bool continues_after_end() override {
    EXPECT_FALSE(paused) << "ended while paused";
    ++questions;
    return continues;
  }
  void ended(const Error& reason) override {
    EXPECT_FALSE(paused) << "ended while paused";
    ends.push_back(reason);
  }

  std::size_t space_bytes = 64 * 1024;
  std::vector<std::byte> space;
  std::string text;
  int sendables = 0;
  bool paused = false;     // Set by the test.
  bool continues = false;  // The answer to continues_after_end().
  int questions = 0;
  std::vector<Error> ends;
  std::vector<Error> breaks;
  std::function<void()> on_received;
  std::function<void()> on_sendable;
};

class TcpLoopTest : public exec::LoopTest {
 protected:
  // Runs the loop until `done` returns true, or for some seconds.
  template <class F>
  bool until(F done) {
    return loop.run([](Loop& self, F& condition) -> Task<bool> {
      for (int i = 0; i < 50'000; ++i) {
        if (condition()) co_return true;
        co_await self.sleep(std::chrono::microseconds(100));
      }
      co_return false;
    }(loop, done));
  }
  // Sends some bytes between a client and the last stream that was accepted. Then the accepted streams end, and the
  // client notices.
  void talk_and_end(Stream& client, std::vector<std::unique_ptr<Stream>>& accepted) {
    Stream& server = *accepted.back();
    TestSink client_sink;
    TestSink server_sink;
    client.start(loop, client_sink);
    server.start(loop, server_sink);
    client.send(std::array{ConstBuffer{as_bytes("ping").data(), 4}});
    ASSERT_TRUE(until([&] { return server_sink.text == "ping"; }));
    server.send(std::array{ConstBuffer{as_bytes("pong").data(), 4}});
    ASSERT_TRUE(until([&] { return client_sink.text == "pong"; }));
    accepted.clear();
    EXPECT_TRUE(until([&] { return client_sink.ends.size() == 1; }));
  }
  void turns(int count) {
    until([&] { return count-- == 0; });
  }
};

// A stream on the loop. The test holds the other end of its socket.
class StreamTest : public TcpLoopTest {
 protected:
  void SetUp() override {
    TcpLoopTest::SetUp();
    if (IsSkipped()) return;
    connect_ends();
  }
  void connect_ends() {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    stream = std::make_unique<TcpStream>(Descriptor(ends[0]));
    fd = ends[0];
    peer = Descriptor(ends[1]);
  }
  void start() { stream->start(loop, sink); }
  void pause() {
    sink.paused = true;
    stream->pause();
  }
  void resume() {
    sink.paused = false;
    stream->resume();
  }
  // Writes as much as the socket accepts; returns the number of bytes.
  std::size_t write_some(std::string_view text) {
    const ssize_t size = ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return size < 0 ? 0 : static_cast<std::size_t>(size);
  }
  void write_all(std::string_view text) { ASSERT_EQ(write_some(text), text.size()); }
  std::string read_some() {
    std::string text(1 << 20, '\0');
    const ssize_t size = ::recv(peer.get(), text.data(), text.size(), MSG_DONTWAIT);
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }
  bool peer_sees_the_end() {
    char byte;
    return ::recv(peer.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

  TestSink sink;
  std::unique_ptr<TcpStream> stream;
  int fd = -1;
  Descriptor peer;
};

// Returns `size` bytes in which neighbours differ.
inline std::string test_bytes(std::size_t size, unsigned seed = 1) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 131 + i / 256 * 17 + seed) & 0xff);
  return text;
}

}  // namespace hawser::transport
