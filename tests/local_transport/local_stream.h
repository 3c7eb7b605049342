#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"

namespace local_transport {

// Owns a file descriptor.
class Socket {
 public:
  Socket() noexcept = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Byte stream over a connected Unix socket. The byte stream on which the peers met stays open beside it. When that one
// ends, this one ends after the bytes that have arrived.
class LocalStream final : public hawser::transport::Stream, hawser::exec::Watcher, hawser::transport::StreamSink {
 public:
  // With an invalid socket, the stream ends as soon as it is started.
  LocalStream(Socket socket, std::unique_ptr<hawser::transport::Stream> beside)
      : socket_(std::move(socket)), beside_(std::move(beside)) {}
  ~LocalStream() override;

  void start(hawser::Loop& loop, hawser::transport::StreamSink& sink) override;
  void set_sink(hawser::transport::StreamSink& sink) noexcept override { sink_ = &sink; }
  std::size_t send(std::span<const hawser::ConstBuffer> pieces) override;
  void pause() noexcept override { paused_ = true; }
  void resume() override;
  void finish() noexcept override;
  std::string_view transport() const noexcept override { return "local"; }
  std::string peer() const override { return beside_->peer(); }
  std::string local() const override { return beside_->local(); }

 private:
  // Reads in one callback: other connections of the loop wait no longer than this.
  static constexpr int reads_max = 16;

  void on_ready(hawser::exec::Readiness readiness) override;
  // Callbacks of the byte stream beside this one.
  hawser::MutableBytes receive_space() override { return space_; }
  void received(std::size_t bytes) override;
  void sendable(std::size_t) override {}
  void ended(const hawser::Error& reason) override;

  void read_soon();
  void read();
  void end(const hawser::Error& reason);

  Socket socket_;
  const std::unique_ptr<hawser::transport::Stream> beside_;
  hawser::Loop* loop_ = nullptr;
  hawser::transport::StreamSink* sink_ = nullptr;
  bool paused_ = false;
  bool reading_ = false;
  bool blocked_ = false;  // A send was incomplete.
  bool ended_ = false;
  std::optional<hawser::Error> peer_gone_;  // The byte stream has ended.
  std::array<std::byte, 16> space_{};
  // Tasks posted by this object hold a weak reference, to see whether it still exists.
  const std::shared_ptr<char> alive_ = std::make_shared<char>();
};

}  // namespace local_transport
