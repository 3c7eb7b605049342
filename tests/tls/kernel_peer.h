#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/test/loop_testing.h"
#include "pipe/null_sink.h"
#include "security/tls/stream.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"
#include "transport/tcp/tcp_stream.h"

// Connections with a TlsStream at one end, whose kernel encrypts, and OpenSSL at the other.
namespace hawser::testing_tools {

// The end with OpenSSL, with blocking calls.
class OpensslEnd {
 public:
  OpensslEnd(int fd, std::unique_ptr<security::tls::TlsSession> session) : fd_(fd), session_(std::move(session)) {}
  OpensslEnd(OpensslEnd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), session_(std::move(other.session_)) {}
  ~OpensslEnd() { close(); }

  security::tls::TlsSession& session() { return *session_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void reset() {
    const linger hard{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void send_raw(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
  }
  void flush() {
    send_raw(session_->output().bytes());
    session_->output().clear();
  }
  bool handshake() {
    for (;;) {
      const security::tls::TlsSession::Progress progress = session_->handshake();
      flush();
      if (progress != security::tls::TlsSession::Progress::more)
        return progress == security::tls::TlsSession::Progress::done;
      if (!fill()) return false;
    }
  }
  void send(std::string_view text) {
    write_text(*session_, text);
    flush();
  }
  // The next bytes; empty after `end()` has been set.
  std::string receive_some() {
    std::string some(64 * 1024, '\0');
    for (;;) {
      std::size_t bytes = 0;
      end_ = session_->read({reinterpret_cast<std::byte*>(some.data()), some.size()}, bytes);
      some.resize(end_ == security::tls::TlsSession::Read::data ? bytes : some.size());
      if (end_ == security::tls::TlsSession::Read::data) return some;
      if (end_ != security::tls::TlsSession::Read::more || !fill()) return {};
    }
  }
  std::string receive(std::size_t size) {
    std::string all;
    while (all.size() < size) {
      const std::string some = receive_some();
      if (some.empty()) break;
      all += some;
    }
    return all;
  }
  std::string receive_all() { return receive(SIZE_MAX); }
  // Why receive_some() returned nothing: closed, failed, or more, if the bytes ended without the end of TLS.
  security::tls::TlsSession::Read end() const { return end_; }
  // Whether the end of the stream, and nothing else, comes next.
  bool stream_ends() {
    char one = 0;
    return wait() && recv(fd_, &one, 1, MSG_DONTWAIT) == 0;
  }

 private:
  bool wait() const {
    pollfd one{fd_, POLLIN, 0};
    return poll(&one, 1, static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count())) > 0;
  }
  bool fill() {
    if (!wait()) return false;
    const MutableBytes room = session_->input().reserve(64 * 1024);
    const ssize_t size = recv(fd_, room.data(), room.size(), 0);
    if (size <= 0) return false;
    session_->input().commit(static_cast<std::size_t>(size));
    return true;
  }
  int fd_;
  std::unique_ptr<security::tls::TlsSession> session_;
  security::tls::TlsSession::Read end_ = security::tls::TlsSession::Read::more;
};

// The other end, on a loop of a thread of its own. It sends back what it receives, and what say() gives it.
class KernelEnd final : transport::StreamSink {
 public:
  struct Settings {
    bool server = true;
    PollerKind poller = PollerKind::epoll;
    bool continues = false;      // After the peer's end.
    std::string after_end = {};  // Sent then, before finish().
    int send_buffer_bytes = 0;   // 0: unchanged.
  };
  KernelEnd(int fd, std::shared_ptr<security::tls::TlsShared> shared, security::tls::TlsStream::MakeSession make,
            Settings settings)
      : settings_(std::move(settings)) {
    if (settings_.send_buffer_bytes != 0) {
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &settings_.send_buffer_bytes, sizeof settings_.send_buffer_bytes);
    }
    thread_ = std::thread([this, fd, shared = std::move(shared), make = std::move(make)] {
      LoopOptions options;
      options.poller = settings_.poller;
      Loop loop(options);
      auto below = std::make_unique<transport::TcpStream>(Descriptor(fd));
      if (settings_.server) {
        below->start(loop, pipe::null_sink());
        below->pause();
      }
      stream_ = std::make_unique<security::tls::TlsStream>(shared, std::move(below), make, settings_.server);
      stream_->start(loop, *this);
      loop.run([](Loop& of, KernelEnd& self) -> Task<void> {
        while (!self.stopping_.load()) {
          self.take_orders();
          co_await of.sleep(std::chrono::milliseconds(1));
        }
      }(loop, *this));
      stream_.reset();
    });
  }
  ~KernelEnd() { stop(); }
  // Ends the stream at once.
  void stop() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  void say(std::string text, bool finish = false) {
    const std::lock_guard lock(mutex_);
    orders_ += text;
    finish_ = finish_ || finish;
    ordered_ = true;
  }
  bool ended() const { return ended_.load(); }
  std::string reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  std::string details() {
    const std::lock_guard lock(mutex_);
    return details_;
  }

 private:
  void take_orders() {
    {
      const std::lock_guard lock(mutex_);
      details_ = stream_->link_details();
      if (!std::exchange(ordered_, false)) return;
      waiting_ += std::exchange(orders_, {});
    }
    send_waiting();
  }
  MutableBytes receive_space() override { return space_; }
  void received(std::size_t bytes) override {
    waiting_.append(reinterpret_cast<const char*>(space_.data()), bytes);
    send_waiting();
  }
  void sendable(std::size_t) override {
    blocked_ = false;
    send_waiting();
  }
  // The memory is overwritten as soon as it is accepted.
  void send_waiting() {
    while (!blocked_ && !waiting_.empty()) {
      const std::size_t half = waiting_.size() / 2;
      const auto* const data = reinterpret_cast<const std::byte*>(waiting_.data());
      const ConstBuffer pieces[] = {{data, half}, {data + half, waiting_.size() - half}};
      const std::size_t sent = stream_->send(pieces);
      blocked_ = sent < waiting_.size();
      std::fill_n(waiting_.begin(), sent, '?');
      waiting_.erase(0, sent);
    }
    bool finish = false;
    {
      const std::lock_guard lock(mutex_);
      finish = finish_ && waiting_.empty();
      if (finish) finish_ = false;
    }
    if (finish) stream_->finish();
  }
  bool continues_after_end() override {
    if (!settings_.continues) return false;
    say(settings_.after_end, true);
    return true;
  }
  void ended(const Error& reason) override {
    const std::lock_guard lock(mutex_);
    reason_ = reason.text;
    ended_.store(true);
  }

  Settings settings_;
  std::unique_ptr<security::tls::TlsStream> stream_;
  std::vector<std::byte> space_ = std::vector<std::byte>(64 * 1024);
  std::string waiting_;
  bool blocked_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // Guards the following members.
  std::string orders_;
  bool ordered_ = false;
  bool finish_ = false;
  std::string reason_;
  std::string details_;
  std::thread thread_;
};

}  // namespace hawser::testing_tools
