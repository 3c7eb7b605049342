#include "transport/tcp/tcp_network.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log_line.h"
#include "base/try.h"
#include "exec/live_loops.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "os/passed_descriptors.h"
#include "transport/tcp/connect_race.h"
#include "transport/tcp/inherited_socket.h"
#include "transport/tcp/resolver.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_stream.h"
#include "transport/tcp/unix_listening.h"

namespace hawser::transport {
namespace {

// Limit of connections that wait in the kernel. The kernel caps it at net.core.somaxconn.
constexpr int backlog_max = 4096;

class TcpListener final : public Listener, exec::Watcher {
 public:
  // `shared`: another process may have the socket too.
  TcpListener(Loop& loop, Descriptor socket, SocketFile file, AcceptSink& sink, bool shared = false)
      : loop_(loop), socket_(std::move(socket)), file_(std::move(file)), sink_(sink), shared_(shared), retry_(*this) {
    loop_.poller().watch(socket_.get(), *this);
  }
  ~TcpListener() override {
    if (exec::is_live_loop(loop_)) loop_.poller().unwatch(socket_.get(), *this);
  }

  std::string address() const override { return local_of(socket_.get()); }
  std::vector<Descriptor> copies() override {
    shared_ = true;
    std::vector<Descriptor> sockets;
    sockets.push_back(Descriptor(fcntl(socket_.get(), F_DUPFD_CLOEXEC, first_own_descriptor)));
    return sockets;
  }
  bool accept_waiting() override {
    if (shared_) return false;
    for (unsigned i = 0; i < accepts_per_turn && waiting_tries_ > 0; ++i, --waiting_tries_) {
      Descriptor socket = accept_next();
      if (socket.valid()) {
        accept_one(std::move(socket));
      } else if (errno == EAGAIN) {
        return false;
      } else if (!is_of_one_connection(errno)) {
        log_reset(errno);
        return false;
      }
    }
    return waiting_tries_ > 0;
  }
  void keep_file() noexcept override { file_.keep(); }

 private:
  static constexpr Duration retry_interval = std::chrono::milliseconds(100);
  static constexpr Duration log_interval = std::chrono::seconds(1);
  // Limit of failed attempts in one turn, so that others get theirs.
  static constexpr unsigned failures_per_turn = 64;
  static constexpr unsigned accepts_per_turn = 64;

  void on_ready(exec::Readiness) override { accept_all(); }

  Descriptor accept_next() noexcept {
    return Descriptor(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }

  // Only the end of the listener ends accepting. A failed accept is tried again, at once if the failure concerned one
  // connection.
  void accept_all() {
    unsigned accepted = 0;
    for (unsigned failures = 0; failures < failures_per_turn;) {
      // The accepted connections are served before more are accepted. Otherwise many clients at once would fill the
      // server with connections whose HELLOs nobody has read.
      if (accepted == accepts_per_turn) return retry_.start(loop_, loop_.now());
      Descriptor socket = accept_next();
      if (socket.valid()) {
        ++accepted;
        accept_one(std::move(socket));
        continue;
      }
      if (errno == EAGAIN) return;
      ++failures;
      if (is_of_one_connection(errno)) continue;
      if (loop_.now() >= next_line_) {
        next_line_ = loop_.now() + log_interval;
        log_line(loop_.options().log, LogLevel::error, "tcp", [why = errno] {
          return socket_error(ErrorCode::limit_exceeded,
                              why == EMFILE ? "cannot accept; trying again in 100 ms (raise ulimit -n?)"
                                            : "cannot accept; trying again in 100 ms",
                              why)
              .text;
        });
      }
      break;
    }
    // Connections that wait in the kernel raise no new edge.
    retry_.start(loop_, loop_.now() + retry_interval);
  }

  void accept_one(Descriptor socket) {
    try {
      prepare_stream_socket(socket.get());
      sink_.accepted(std::make_unique<TcpStream>(std::move(socket)));
    } catch (const std::exception& error) {
      if (loop_.now() < next_line_) return;
      next_line_ = loop_.now() + log_interval;
      log_line(loop_.options().log, LogLevel::error, "tcp",
               [&error] { return std::string("an accepted connection is dropped: ") + error.what(); });
    }
  }

  // The listener ends although connections wait.
  void log_reset(int error) const {
    // accept4() needs a descriptor before it knows that no connection waits.
    pollfd queue{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&queue, 1, 0) == 0) return;
    tcp_info info{};  // Its tcpi_unacked is the number of connections that wait, since the socket listens.
    socklen_t size = sizeof info;
    const bool known = getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    log_line(loop_.options().log, LogLevel::error, "tcp", [&] {
      std::string text = "connections that wait are reset because the server stops and cannot accept them";
      if (known) text += ": " + std::to_string(info.tcpi_unacked);
      if (error == EMFILE) text += " (raise ulimit -n?)";
      return socket_error(ErrorCode::limit_exceeded, text, error).text;
    });
  }

  // Errors of the connection that was to be accepted. The next connection may work (accept(2), "Error handling").
  static bool is_of_one_connection(int error) noexcept {
    switch (error) {
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case EPERM:
      case ENETDOWN:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case ENONET:
      case EHOSTUNREACH:
      case EOPNOTSUPP:
      case ENETUNREACH:
      case ETIMEDOUT: return true;
      default: return false;
    }
  }

  Loop& loop_;
  Descriptor socket_;
  SocketFile file_;
  AcceptSink& sink_;
  bool shared_;
  int waiting_tries_ = backlog_max;  // accept_waiting() may still try so often.
  MemberTimer<&TcpListener::accept_all> retry_;
  Time next_line_{};  // Earliest time of the next log line about a failure.
};

// A host with several addresses, such as localhost, listens on each of them, at one port. Or several sockets that were
// inherited.
class TcpListeners final : public Listener {
 public:
  explicit TcpListeners(std::vector<std::unique_ptr<TcpListener>> all) : all_(std::move(all)) {}

  std::string address() const override { return all_.front()->address(); }
  std::vector<Descriptor> copies() override {
    std::vector<Descriptor> sockets;
    for (const auto& one : all_) sockets.push_back(std::move(one->copies().front()));
    return sockets;
  }
  bool accept_waiting() override {
    bool more = false;
    for (const auto& one : all_) more |= one->accept_waiting();
    return more;
  }
  void keep_file() noexcept override {
    for (const auto& one : all_) one->keep_file();
  }

 private:
  const std::vector<std::unique_ptr<TcpListener>> all_;
};

Result<Descriptor> listening_socket(const SocketAddress& address, bool one_family, std::string_view text, int& error) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    error = errno;
    Error failed = socket_error(ErrorCode::unavailable, "cannot listen on " + std::string(text), error);
    if (error == EAFNOSUPPORT) failed.text += " (this machine has no IPv6: use 0.0.0.0, or * for all that it has)";
    return fail(std::move(failed));
  }
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Otherwise [::] takes the port of 0.0.0.0 too.
  if (one_family && address.family() == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (bind(socket.get(), address.get(), address.size) != 0 || ::listen(socket.get(), backlog_max) != 0) {
    error = errno;
    std::string what = "cannot listen on " + std::string(text);
    if (one_family) what += " (" + to_string(address) + ")";
    return fail(socket_error(ErrorCode::unavailable, what, error));
  }
  return socket;
}

// One socket for each address. Addresses that this machine does not have are left out, unless it has none of them.
Result<std::vector<Descriptor>> listening_sockets(std::vector<SocketAddress> addresses, std::string_view text) {
  constexpr int ports_tried_max = 16;
  const bool any_port = addresses.front().port() == 0;
  for (int tried = 0;; ++tried) {
    std::vector<Descriptor> sockets;
    std::optional<Error> absent;
    bool again = false;
    for (SocketAddress one : addresses) {
      if (any_port && !sockets.empty()) one.set_port(local_port(sockets.front().get()));
      int error = 0;
      Result<Descriptor> socket = listening_socket(one, addresses.size() > 1, text, error);
      if (socket) {
        sockets.push_back(std::move(*socket));
      } else if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
        absent = std::move(socket.error());
      } else if (again = any_port && error == EADDRINUSE && !sockets.empty() && tried < ports_tried_max; again) {
        break;  // The port that is free for one address is not free for another.
      } else {
        return fail(std::move(socket.error()));
      }
    }
    if (again) continue;
    if (sockets.empty()) return fail(std::move(*absent));
    return sockets;
  }
}

// Resumes when a connecting socket becomes writable or the time is up.
class Connecting final : exec::Watcher {
 public:
  Connecting(Loop& loop, int fd, Time deadline) : loop_(loop), fd_(fd), deadline_(deadline) {}
  ~Connecting() {
    if (!waiting_ || !exec::is_live_loop(loop_)) return;
    loop_.poller().unwatch(fd_, *this);
    if (queued_ && !resumed_) loop_.forget(waiting_);
  }

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) {
    loop_.poller().watch(fd_, *this);
    waiting_ = waiting;
    timer_.start(loop_, deadline_);
  }
  // Returns 0, or the system's error.
  int await_resume() noexcept {
    resumed_ = true;
    if (!ready_) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }

 private:
  void on_ready(exec::Readiness readiness) override {
    // A new socket may report a hang-up before connect() has an effect. The outcome is reported as writable or as an
    // error.
    if (!readiness.writable && !readiness.hangup) return;
    ready_ = true;
    finish();
  }
  void finish() noexcept {
    if (std::exchange(queued_, true)) return;
    timer_.stop();
    loop_.resume_soon(waiting_);
  }

  Loop& loop_;
  const int fd_;
  const Time deadline_;
  std::coroutine_handle<> waiting_;
  bool ready_ = false;
  bool queued_ = false;
  bool resumed_ = false;
  MemberTimer<&Connecting::finish> timer_{*this};
};

}  // namespace

Result<std::unique_ptr<Listener>> TcpNetwork::listen(Loop& loop, std::string_view address, AcceptSink& sink) {
  TRY(std::optional<SocketAddress>&& local, parse_unix(address));
  if (local) {
    TRY(UnixListening&& listening, listen_unix(*local, backlog_max));
    return std::make_unique<TcpListener>(loop, std::move(listening.socket), std::move(listening.file), sink);
  }
  TRY(std::optional<std::vector<Descriptor>>&& sockets, inherited_sockets(address));
  const bool inherited = sockets.has_value();
  if (!inherited) {
    TRY(HostPort&& where, parse_host_port(address));
    TRY(std::vector<SocketAddress>&& addresses, resolve(where, true, true));
    TRY(sockets, listening_sockets(std::move(addresses), address));
  }
  std::vector<std::unique_ptr<TcpListener>> all;
  for (Descriptor& socket : *sockets) {
    all.push_back(std::make_unique<TcpListener>(loop, std::move(socket), SocketFile(), sink, inherited));
  }
  if (all.size() == 1) return std::move(all.front());
  return std::make_unique<TcpListeners>(std::move(all));
}

namespace {

// If nobody listens at a port of this machine that is also one of the local ports of connections, Linux may take this
// port for the connection and connect the socket with itself. It would also keep the server from this port. The peer
// may have another address than `to`: Linux connects 0.0.0.0 and [::] to the local host.
bool connected_to_itself(int fd, const SocketAddress& to) {
  return to.family() != AF_UNIX && local_port(fd) == to.port() && local_of(fd) == peer_of(fd);
}

Error connect_error(const SocketAddress& to, int error) {
  Error failed = socket_error(ErrorCode::unavailable, "cannot connect to " + to_string(to), error);
  if (error == EADDRNOTAVAIL) {
    failed.text +=
        " (all local ports for this address are in use? keep connections, or raise net.ipv4.ip_local_port_range)";
  }
  return failed;
}

Task<Result<Descriptor>> connect_socket(Loop& loop, SocketAddress to, Time deadline) {
  Descriptor socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    const int error = errno;
    co_return fail(socket_error(ErrorCode::unavailable,
                                error == EMFILE ? "cannot make a socket (raise ulimit -n?)" : "cannot make a socket",
                                error));
  }
  if (to.family() == AF_UNIX) {
    refuse_descriptors(socket.get());
  } else {
    prepare_stream_socket(socket.get());
  }
  int error = ::connect(socket.get(), to.get(), to.size) == 0 ? 0 : errno;
  // A Unix socket does not notify when a full queue has room again, so connecting is tried again.
  while (error == EAGAIN && loop.now() < deadline) {
    co_await loop.sleep(std::min<Duration>(std::chrono::milliseconds(1), deadline - loop.now()));
    error = ::connect(socket.get(), to.get(), to.size) == 0 ? 0 : errno;
  }
  if (error == EINPROGRESS) {
    error = co_await Connecting(loop, socket.get(), deadline);
  }
  if (error == 0 && connected_to_itself(socket.get(), to)) error = ECONNREFUSED;
  if (error == 0) co_return socket;
  co_return fail(connect_error(to, error));
}

}  // namespace

Task<Result<std::unique_ptr<Stream>>> TcpNetwork::connect(Loop& loop, std::string address, Duration timeout) {
  const Time deadline = loop.after(timeout);
  AddressList addresses(loop);
  std::optional<Resolver> resolver;
  CO_TRY(std::optional<SocketAddress>&& local, parse_unix(address));
  if (local) {
    addresses.add(*local);
    addresses.complete();
  } else {
    CO_TRY(HostPort&& where, parse_host_port(address));
    // A numeric address needs no resolver.
    if (const Result<std::vector<SocketAddress>> numeric = resolve(where, false, false); numeric) {
      for (const SocketAddress& one : *numeric) addresses.add(one);
      addresses.complete();
    } else {
      resolver.emplace(loop, where, addresses, names_);
    }
  }
  const ConnectAttempt attempt = [&loop, deadline](SocketAddress to) { return connect_socket(loop, to, deadline); };
  Result<Descriptor> socket = co_await race_to_connect(loop, addresses, attempt, deadline);
  if (!socket) {
    Error error = std::move(socket.error());
    if (error.text.find(address) == std::string::npos) error.text = address + ": " + error.text;
    co_return fail(std::move(error));
  }
  co_return std::make_unique<TcpStream>(std::move(*socket));
}

}  // namespace hawser::transport
