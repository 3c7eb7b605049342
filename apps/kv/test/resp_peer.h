#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/server.h"
#include "kv/password_gate.h"
#include "kv/service.h"
#include "kv/store.h"
#include "protocol/resp/test/request_text.h"

namespace hawser::kv {

using protocol::resp::request;

// Length of the reply at the beginning of `text`; npos: it is not complete.
inline std::size_t reply_bytes(std::string_view text) {
  const std::size_t end = text.find("\r\n");
  if (end == std::string_view::npos) return end;
  const long count = std::atol(std::string(text.substr(1, end - 1)).c_str());
  std::size_t at = end + 2;
  switch (text.front()) {
    case '$':
    case '=':
      if (count < 0) return at;
      at += static_cast<std::size_t>(count) + 2;
      return at <= text.size() ? at : std::string_view::npos;
    case '*':
    case '~':
    case '>':
    case '%':
      for (long i = 0; i < (text.front() == '%' ? 2 * count : count); ++i) {
        const std::size_t element = reply_bytes(text.substr(at));
        if (element == std::string_view::npos) return element;
        at += element;
      }
      return at;
    default: return at;
  }
}

// A client that sends and receives bytes. Waits for a generous time.
class RespPeer {
 public:
  explicit RespPeer(const std::string& address) {
    if (address.starts_with("unix:")) {
      sockaddr_un to = {};
      to.sun_family = AF_UNIX;
      address.copy(to.sun_path, sizeof to.sun_path - 1, 5);
      fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
      connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    } else {
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
      fd_ = socket(AF_INET, SOCK_STREAM, 0);
      connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
    }
  }
  RespPeer(const RespPeer&) = delete;
  RespPeer& operator=(const RespPeer&) = delete;
  ~RespPeer() { close(fd_); }

  bool connected() const { return connected_; }
  int descriptor() const { return fd_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // The next reply; what has arrived if the connection ends before.
  std::string receive() {
    for (;;) {
      const std::size_t size = held_.empty() ? std::string::npos : reply_bytes(held_);
      if (size != std::string::npos) {
        std::string reply = held_.substr(0, size);
        held_.erase(0, size);
        return reply;
      }
      if (!more()) return std::exchange(held_, {});
    }
  }
  // Everything until the connection ends.
  std::string rest() {
    while (more()) {
    }
    return std::exchange(held_, {});
  }
  std::string call(const std::vector<std::string>& words) {
    send(request(words));
    return receive();
  }
  std::string line(std::string_view text) {
    send(std::string(text) + "\r\n");
    return receive();
  }

 private:
  bool more() {
    pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, 60'000) != 1) return false;
    char bytes[65536];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    held_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  int fd_ = -1;
  bool connected_ = false;
  std::string held_;
};

// A server with a store in this process.
class KvServer {
 public:
  explicit KvServer(StoreOptions options = {}, ServerOptions server = {}, const LogOptions* log = nullptr,
                    std::shared_ptr<PasswordGate> gate = {})
      : store(set_up(options)) {
    if (log != nullptr) {
      const Result<LogReport> opened = store.open_log(*log);
      EXPECT_TRUE(opened) << (opened ? "" : opened.error().text);
      if (opened) report = *opened;
    }
    server.threads = store.shards();
    server_ = std::make_unique<Server>(server);
    attach_store(*server_, store, service, std::move(gate));
    const Result<void> started = server_->start();
    EXPECT_TRUE(started) << (started ? "" : started.error().text);
    store.bind(server_->loops());
    for (unsigned i = 0; i < store.shards(); ++i) {
      EXPECT_TRUE(server_->spawn([this](Background background) { return store.maintain(background); }));
    }
  }
  ~KvServer() {
    store.holds().end();
    server_->stop(std::chrono::milliseconds(100));
    const Result<void> closed = store.close_log();
    EXPECT_TRUE(closed) << (closed ? "" : closed.error().text);
  }
  std::string address() const { return server_->address(); }
  Server& server() { return *server_; }

  Store store;
  Service service{store};
  LogReport report;

 private:
  static StoreOptions set_up(StoreOptions options) {
    if (options.memory_bytes > (std::size_t{64} << 20)) options.memory_bytes = std::size_t{64} << 20;
    return options;
  }
  std::unique_ptr<Server> server_;
};

// Waits until each loop is in a later tick: a shard asks the clock once in a tick.
inline void pass_ticks(KvServer& server) {
  for (unsigned i = 0; i < server.store.shards(); ++i) {
    Loop& loop = server.store.site(i).loop();
    const auto tick = [&loop] {
      std::promise<Time> now;
      loop.post([&] { now.set_value(loop.now()); });
      return now.get_future().get();
    };
    const Time before = tick();
    while (tick() == before) {
    }
  }
}

// Debian's redis-server, if it is installed, at a Unix socket in a folder of its own.
class RedisServer {
 public:
  // `password`: what clients must send; empty: nothing.
  explicit RedisServer(const std::string& password = {}) {
    if (access(program, X_OK) != 0) return;
    const std::string folder = folder_.path().string();
    const std::string path = folder + "/redis";
    process_ = fork();
    if (process_ == 0) {
      execl(program, program, "--port", "0", "--databases", "1", "--unixsocket", path.c_str(), "--save", "",
            "--appendonly", "no", "--dir", folder.c_str(), "--logfile", (folder + "/log").c_str(), "--requirepass",
            password.c_str(), static_cast<char*>(nullptr));
      _exit(1);
    }
    // Waits until it listens; the limit detects a server that does not start.
    for (int i = 0; i < 6000 && !ready_; ++i) {
      usleep(10'000);
      RespPeer peer("unix:" + path);
      const std::string reply = peer.connected() ? peer.call({"PING"}) : std::string();
      ready_ = reply == "+PONG\r\n" || reply.starts_with("-NOAUTH");
    }
    address_ = "unix:" + path;
  }
  ~RedisServer() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
  }
  bool ready() const { return ready_; }
  const std::string& address() const { return address_; }

 private:
  static constexpr const char* program = "/usr/bin/redis-server";
  pid_t process_ = -1;
  bool ready_ = false;
  const TemporaryFolder folder_;
  std::string address_;
};

}  // namespace hawser::kv
