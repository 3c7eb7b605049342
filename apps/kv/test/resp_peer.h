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

#include <algorithm>
#include <cstdlib>
#include <future>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/server.h"
#include "kv/password_gate.h"
#include "kv/service.h"
#include "kv/store.h"
#include "protocol/resp/test/request_text.h"

namespace hawser::kv {

using protocol::resp::request;

// Finds the end of a reply that arrives in parts, each of which it reads once.
class ReplyEnd {
 public:
  // False: the reply at the beginning of `text` is not complete. `text` has grown since the last call.
  bool find(std::string_view text) {
    while (left_ > 0) {
      const std::size_t end = text.find("\r\n", at_);
      if (end == std::string_view::npos) return false;
      const char kind = text[at_];
      const long count = std::atol(std::string(text.substr(at_ + 1, end - at_ - 1)).c_str());
      std::size_t next = end + 2;
      if ((kind == '$' || kind == '=') && count >= 0) next += static_cast<std::size_t>(count) + 2;
      if (next > text.size()) return false;
      at_ = next;
      --left_;
      if (kind == '*' || kind == '~' || kind == '>') left_ += std::max(count, 0L);
      if (kind == '%') left_ += 2 * count;
    }
    return true;
  }
  // Behind the reply that was found.
  std::size_t bytes() const { return at_; }

 private:
  std::size_t at_ = 0;
  long left_ = 1;  // Elements that have not been found.
};

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
      if (end_.find(held_)) {
        const std::size_t size = std::exchange(end_, {}).bytes();
        std::string reply = held_.substr(0, size);
        held_.erase(0, size);
        return reply;
      }
      if (!more()) return take_rest();
    }
  }
  // Everything until the connection ends.
  std::string rest() {
    while (more()) {
    }
    return take_rest();
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
  std::string take_rest() {
    end_ = {};
    return std::exchange(held_, {});
  }
  int fd_ = -1;
  bool connected_ = false;
  std::string held_;
  ReplyEnd end_;
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
