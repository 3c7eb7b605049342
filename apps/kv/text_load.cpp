#include "kv/text_load.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/try.h"

namespace hawser::kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int silence_ms = 10'000;
constexpr std::size_t read_bytes = std::size_t{64} << 10;

std::unexpected<Error> connection_error(const std::string& address, std::string_view action) {
  return fail(ErrorCode::unavailable, fmt::format("{}: cannot {}: {}", address, action, std::strerror(errno)));
}

Result<Descriptor> connect_to_unix(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = address.substr(std::string_view("unix:").size());
  if (path.empty() || path.size() >= sizeof name.sun_path) {
    return fail(ErrorCode::invalid_argument, fmt::format("{}: the path of a Unix socket has 1 to {} bytes, this one {}",
                                                         address, sizeof name.sun_path - 1, path.size()));
  }
  path.copy(name.sun_path, path.size());
  if (path.front() == '@') name.sun_path[0] = '\0';
  Descriptor connected(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (connect(connected.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0) {
    return connection_error(address, "connect");
  }
  return connected;
}

Result<Descriptor> connect_to(const std::string& address) {
  if (address.starts_with("unix:")) return connect_to_unix(address);
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return fail(ErrorCode::invalid_argument, address + ": an address is HOST:PORT or unix:PATH");
  }
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed =
          getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &wanted, &found);
      failed != 0) {
    return fail(ErrorCode::unavailable, fmt::format("{}: cannot resolve: {}", address, gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  Descriptor connected(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(connected.get(), found->ai_addr, found->ai_addrlen) != 0) return connection_error(address, "connect");
  const int on = 1;
  setsockopt(connected.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connected;
}

// Sends the password to a server of the Redis protocol, unless it is empty, and waits for the reply.
Result<void> authenticate(const Descriptor& connected, const std::string& password) {
  if (password.empty()) return {};
  const timeval limit{.tv_sec = silence_ms / 1000, .tv_usec = 0};
  setsockopt(connected.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string command = fmt::format("*2\r\n$4\r\nAUTH\r\n${}\r\n{}\r\n", password.size(), password);
  std::array<char, 512> reply;
  std::size_t bytes = 0;
  if (send(connected.get(), command.data(), command.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(command.size())) {
    while (bytes < reply.size() && !std::string_view(reply.data(), bytes).ends_with('\n')) {
      const ssize_t got = recv(connected.get(), reply.data() + bytes, reply.size() - bytes, 0);
      if (got <= 0) break;
      bytes += static_cast<std::size_t>(got);
    }
  }
  std::string_view text(reply.data(), bytes);
  if (text == "+OK\r\n") return {};
  text = text.substr(0, text.find('\r'));
  return fail(ErrorCode::unauthenticated, "the server has not accepted the password: " +
                                              (text.empty() ? std::string("it has not answered") : std::string(text)));
}

enum class TextReply : std::uint8_t { value, stored };

// One protocol: the commands and the replies.
class TextProtocol {
 public:
  explicit TextProtocol(bool memcached) : memcached_(memcached) {}

  void get(std::string& to, std::string_view key) const {
    if (memcached_) {
      to.append("get ").append(key).append("\r\n");
    } else {
      fmt::format_to(std::back_inserter(to), "*2\r\n$3\r\nGET\r\n${}\r\n{}\r\n", key.size(), key);
    }
  }
  void set(std::string& to, std::string_view key, std::string_view value) const {
    if (memcached_) {
      fmt::format_to(std::back_inserter(to), "set {} 0 0 {}\r\n{}\r\n", key, value.size(), value);
    } else {
      fmt::format_to(std::back_inserter(to), "*3\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n{}\r\n", key.size(), key,
                     value.size(), value);
    }
  }

  // Returns the length of the reply at the begin of `text`, 0 if it is not complete. Sets `found` to the length of the
  // value, nothing if there is none.
  Result<std::size_t> take(std::string_view text, TextReply kind, std::optional<std::size_t>& found) const {
    const std::size_t end = text.find("\r\n");
    if (end == std::string_view::npos) return std::size_t{0};
    const std::string_view line = text.substr(0, end);
    const std::size_t after = end + 2;
    if (kind == TextReply::stored) {
      if (line == (memcached_ ? "STORED" : "+OK")) return after;
      return refused(line);
    }
    if (line == (memcached_ ? "END" : "$-1")) return after;
    if (!line.starts_with(memcached_ ? "VALUE " : "$")) return refused(line);
    const std::string_view digits = line.substr(memcached_ ? line.rfind(' ') + 1 : 1);
    std::size_t bytes = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), bytes).ec != std::errc{}) return refused(line);
    found = bytes;
    const std::size_t whole = after + bytes + 2 + (memcached_ ? std::string_view("END\r\n").size() : 0);
    return text.size() < whole ? 0 : whole;
  }

 private:
  static std::unexpected<Error> refused(std::string_view line) {
    constexpr std::size_t shown = 200;
    return fail(ErrorCode::application, fmt::format("the server answered: {}", line.substr(0, shown)));
  }

  const bool memcached_;
};

struct Batch {
  std::string commands;
  std::vector<std::pair<TextReply, bool>> expected;  // The second is true for the last reply of an operation.
};
// Adds one operation and the replies that it expects. Returns false if there are no more.
using AddOperation = std::function<bool(Batch&)>;

class TextConnection {
 public:
  TextConnection(Descriptor descriptor, TextProtocol protocol, AddOperation add)
      : descriptor_(std::move(descriptor)), protocol_(protocol), add_(std::move(add)) {}

  int descriptor() const { return descriptor_.get(); }
  bool done() const { return done_; }

  // Sends the next operations.
  Result<void> begin(unsigned operations) {
    batch_.commands.clear();
    batch_.expected.clear();
    next_ = 0;
    sent_ = 0;
    for (unsigned i = 0; i < operations && add_(batch_); ++i) {
    }
    done_ = batch_.expected.empty();
    begun_ = Clock::now();
    return send_more();
  }

  // The descriptor can be written or read. Returns whether all replies have arrived.
  Result<bool> advance(Measurement* run) {
    if (sent_ < batch_.commands.size()) {
      TRY(send_more());
    }
    ssize_t got = 0;
    do {  // A receive that does not fill its memory has emptied the socket: epoll reports what follows.
      const std::size_t before = received_.size();
      received_.resize(before + read_bytes);
      got = recv(descriptor_.get(), received_.data() + before, read_bytes, MSG_DONTWAIT);
      received_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
      if (got == 0) return fail(ErrorCode::unavailable, "the server has closed a connection");
      if (got < 0 && errno != EAGAIN && errno != EINTR) {
        return fail(ErrorCode::unavailable, fmt::format("cannot receive: {}", std::strerror(errno)));
      }
    } while (got == static_cast<ssize_t>(read_bytes) || (got < 0 && errno == EINTR));
    return take_replies(run);
  }

 private:
  Result<void> send_more() {
    while (sent_ < batch_.commands.size()) {
      const ssize_t sent = send(descriptor_.get(), batch_.commands.data() + sent_, batch_.commands.size() - sent_,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) return {};
      if (sent < 0 && errno != EINTR) {
        return fail(ErrorCode::unavailable, fmt::format("cannot send: {}", std::strerror(errno)));
      }
      sent_ += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    }
    return {};
  }

  Result<bool> take_replies(Measurement* run) {
    const auto elapsed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begun_).count();
    std::size_t taken = 0;
    while (next_ < batch_.expected.size()) {
      const auto [kind, last] = batch_.expected[next_];
      std::optional<std::size_t> found;
      TRY(const std::size_t bytes, protocol_.take(std::string_view(received_).substr(taken), kind, found));
      if (bytes == 0) break;
      taken += bytes;
      ++next_;
      if (run == nullptr) continue;
      if (kind == TextReply::value && found != run->value.size()) ++run->failed;
      if (last) run->count(static_cast<std::uint64_t>(elapsed));
    }
    received_.erase(0, taken);
    return next_ == batch_.expected.size();
  }

  Descriptor descriptor_;
  TextProtocol protocol_;
  AddOperation add_;
  Batch batch_;
  std::size_t sent_ = 0;
  std::string received_;
  std::size_t next_ = 0;  // Index of the reply that comes next.
  Clock::time_point begun_;
  bool done_ = false;
};

// Runs connections until none of them has further operations.
Result<void> run_connections(const BenchOptions& options, Measurement* run,
                             const std::function<AddOperation(unsigned index)>& operations) {
  const Descriptor events(epoll_create1(EPOLL_CLOEXEC));
  std::vector<std::unique_ptr<TextConnection>> connections;
  for (unsigned i = 0; i < options.connections; ++i) {
    TRY(auto&& connected, connect_to(options.server.connect));
    TRY(authenticate(connected, options.password));
    connections.push_back(std::make_unique<TextConnection>(
        std::move(connected), TextProtocol(options.protocol == "memcached"), operations(i)));
    epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = connections.back().get()}};
    if (epoll_ctl(events.get(), EPOLL_CTL_ADD, connections.back()->descriptor(), &event) != 0) {
      return connection_error(options.server.connect, "watch a connection");
    }
  }
  std::size_t active = connections.size();
  for (const auto& connection : connections) {
    TRY(connection->begin(options.in_flight));
    if (connection->done()) --active;
  }
  std::array<epoll_event, 64> ready{};
  while (active != 0) {
    const int count = epoll_wait(events.get(), ready.data(), static_cast<int>(ready.size()), silence_ms);
    if (count == 0) {
      return fail(ErrorCode::deadline_exceeded,
                  fmt::format("{}: nothing was received for {} s", options.server.connect, silence_ms / 1000));
    }
    for (int i = 0; i < count; ++i) {
      TextConnection& connection = *static_cast<TextConnection*>(ready[static_cast<std::size_t>(i)].data.ptr);
      if (connection.done()) continue;
      TRY(const bool complete, connection.advance(run));
      if (!complete) continue;
      TRY(connection.begin(options.in_flight));
      if (connection.done()) --active;
    }
  }
  return {};
}

}  // namespace

Result<void> load_keys_by_text(const Measurement& run) {
  const TextProtocol protocol(run.options.protocol == "memcached");
  return run_connections(run.options, nullptr, [&](unsigned index) -> AddOperation {
    return [&run, protocol, next = std::uint64_t{index}](Batch& to) mutable {
      if (next >= run.options.keys) return false;
      protocol.set(to.commands, key_name(next), run.value);
      to.expected.emplace_back(TextReply::stored, true);
      next += run.options.connections;
      return true;
    };
  });
}

Result<void> run_by_text(Measurement& run) {
  const TextProtocol protocol(run.options.protocol == "memcached");
  // The time begins with the first operation, which is performed however long the connections took.
  std::optional<std::chrono::time_point<Clock, std::chrono::duration<double>>> end;
  return run_connections(run.options, &run, [&](unsigned index) -> AddOperation {
    return [&run, protocol, &end, random = Random(index + 1)](Batch& to) mutable {
      if (!end) {
        end = Clock::now() + std::chrono::duration<double>(run.options.seconds);
      } else if (to.expected.empty() && Clock::now() >= *end) {
        return false;
      }
      const std::string key = key_name(run.chooser.next(random));
      const bool reads = random.chance(run.reads);
      if (reads || run.read_modify_write) {
        protocol.get(to.commands, key);
        to.expected.emplace_back(TextReply::value, reads);
      }
      if (!reads) {
        protocol.set(to.commands, key, run.value);
        to.expected.emplace_back(TextReply::stored, true);
      }
      return true;
    };
  });
}

std::string server_process(const std::string& address, bool memcached, const std::string& password) {
  const Result<Descriptor> connected = connect_to(address);
  if (!connected || !authenticate(*connected, password)) return {};
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(connected->get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string_view command = memcached ? "stats\r\n" : "INFO server\r\n";
  std::string text(std::size_t{4096}, '\0');
  if (send(connected->get(), command.data(), command.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(command.size())) {
    return {};
  }
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(recv(connected->get(), text.data(), text.size(), 0), 0)));
  const std::string_view name = memcached ? "STAT pid " : "process_id:";
  const std::size_t begin = text.find(name);
  if (begin == std::string::npos) return {};
  const std::size_t number = begin + name.size();
  return text.substr(number, text.find('\r', number) - number);
}

}  // namespace hawser::kv
