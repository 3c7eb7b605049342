#include "hawser/handover.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/try.h"
#include "os/passed_descriptors.h"
#include "os/process_id.h"
#include "rpc/server/inspector.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/unix_listening.h"

namespace hawser {
namespace {

using HandoverClock = std::chrono::steady_clock;

// The words of the two processes (decision 89). The digit is the version.
constexpr std::size_t handover_word_bytes = 8;
constexpr std::string_view word_take = "take   1";
constexpr std::string_view word_sockets = "sockets1";  // With the descriptors.
constexpr std::string_view word_ready = "ready  1";
constexpr std::string_view word_left = "left   1";
// Limit of an answer for which the other process has nothing to wait.
constexpr Duration handover_answer_max = std::chrono::seconds(30);
constexpr std::size_t handover_sockets_max = 64;
// Time until the next attempt after accept4() failed.
constexpr std::chrono::milliseconds handover_retry_after{100};
// Successors that wait in the kernel while another one takes over.
constexpr int handover_backlog_max = 8;
// The user of all processes whose users this namespace does not know. It proves nothing.
constexpr std::uint32_t unknown_user = 65'534;

// One end of the connection between the two processes.
class HandoverPeer {
 public:
  // A readable `wake` ends receive(). -1: nothing ends it.
  HandoverPeer(Descriptor socket, int wake) noexcept : socket_(std::move(socket)), wake_(wake) {}

  // The process has proved that it belongs to this process's user or to root.
  bool trusted() const {
    const std::shared_ptr<const Identity> identity = transport::unix_peer_of(socket_.get());
    return identity != nullptr && identity->uid != unknown_user && (identity->uid == geteuid() || identity->uid == 0);
  }
  std::string name() const { return transport::peer_of(socket_.get()); }
  // The process has closed its end: it has ended or has given up.
  bool ended() const noexcept {
    pollfd wait{.fd = socket_.get(), .events = POLLRDHUP, .revents = 0};
    return poll(&wait, 1, 0) > 0;
  }

  bool send(std::string_view word, std::span<const int> descriptors = {}) {
    if (!descriptors.empty()) return pass_descriptors(socket_.get(), as_bytes(word), descriptors);
    return ::send(socket_.get(), word.data(), word.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(word.size());
  }

  // False if the peer says something else, has ended or is silent for `limit`, or if this process is woken.
  bool receive(std::string_view word, Duration limit, std::vector<Descriptor>* descriptors = nullptr) {
    const HandoverClock::time_point end = HandoverClock::now() + std::min<Duration>(limit, std::chrono::hours(24));
    std::array<char, handover_word_bytes> text{};
    for (std::size_t bytes = 0; bytes < text.size();) {
      if (!wait_until(end)) return false;
      const ssize_t more = receive_some(std::span(text).subspan(bytes), descriptors);
      if (more < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (more <= 0) return false;
      bytes += static_cast<std::size_t>(more);
    }
    return std::string_view(text.data(), text.size()) == word;
  }

 private:
  // Waits until something has arrived.
  bool wait_until(HandoverClock::time_point end) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - HandoverClock::now());
      std::array<pollfd, 2> waits{pollfd{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = wake_, .events = POLLIN, .revents = 0}};
      const int ready = poll(waits.data(), waits.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
      if (ready < 0 && errno == EINTR) continue;
      return ready > 0 && waits[1].revents == 0;
    }
  }

  ssize_t receive_some(std::span<char> into, std::vector<Descriptor>* descriptors) const {
    iovec data{into.data(), into.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(handover_sockets_max * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (descriptors != nullptr) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
    }
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes <= 0 || descriptors == nullptr) return bytes;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
        descriptors->emplace_back(fd);
      }
    }
    return bytes;
  }

  Descriptor socket_;
  int wake_;
};

std::unexpected<Error> handover_error(ErrorCode code, const std::string& path, std::string_view what) {
  return fail(Error::of_connection(code, "'" + path + "': " + std::string(what)));
}

Result<transport::SocketAddress> handover_address(const std::string& path) {
  if (!path.starts_with('/')) {
    return handover_error(ErrorCode::invalid_argument, path,
                          "the path of the Unix socket of a hand-over begins with /");
  }
  TRY(std::optional<transport::SocketAddress>&& address, transport::parse_unix("unix:" + path));
  return *address;
}

}  // namespace

// ---- The new process ----

struct Predecessor::State {
  std::string path;
  std::optional<HandoverPeer> peer = {};  // Empty: no process offers its sockets.
  std::vector<Descriptor> sockets = {};   // Until listen() has named them.
};

Predecessor::Predecessor(std::unique_ptr<State> state) : state_(std::move(state)) {}
Predecessor::Predecessor(Predecessor&& other) noexcept = default;
Predecessor& Predecessor::operator=(Predecessor&& other) noexcept = default;
Predecessor::~Predecessor() = default;

bool Predecessor::exists() const noexcept { return state_->peer.has_value(); }

Result<Predecessor> Predecessor::ask(std::string path) {
  TRY(transport::SocketAddress&& address, handover_address(path));
  auto state = std::make_unique<State>(State{.path = std::move(path)});
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return fail(transport::socket_error(ErrorCode::unavailable, "cannot make a socket", errno));
  }
  // connect() waits while the queue of the other process is full.
  const timeval limit{.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(handover_answer_max).count(),
                      .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (connect(socket.get(), address.get(), address.size) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return Predecessor(std::move(state));
    return fail(transport::socket_error(errno == EACCES ? ErrorCode::permission_denied : ErrorCode::unavailable,
                                        "cannot connect to unix:" + state->path, errno));
  }
  HandoverPeer peer(std::move(socket), -1);
  if (!peer.trusted()) {
    return handover_error(ErrorCode::permission_denied, state->path,
                          "the process that listens there belongs neither to this user nor to root: use a folder in "
                          "which others cannot make files");
  }
  if (!peer.send(word_take) || !peer.receive(word_sockets, handover_answer_max, &state->sockets) ||
      state->sockets.empty()) {
    return handover_error(ErrorCode::unavailable, state->path,
                          "the process that listens there has not passed its sockets: it stops, it has more than "
                          "64, or another process takes them; try again");
  }
  state->peer = std::move(peer);
  return Predecessor(std::move(state));
}

std::string Predecessor::listen(std::string otherwise) {
  if (state_->sockets.empty()) return otherwise;
  std::string names = "fd:";
  for (Descriptor& socket : state_->sockets) {
    if (names.size() > 3) names += ",";
    names += std::to_string(socket.release());
  }
  state_->sockets.clear();
  return names;
}

// ---- The process that serves ----

struct Handover::State {
  State(Server& of, HandoverOptions with) : server(of), options(std::move(with)) {}
  ~State() {
    if (!thread.joinable()) return;
    if (process != process_id()) {  // In a child by fork(), the thread is the parent's.
      thread.detach();
    } else {
      eventfd_write(wake.get(), 1);
      thread.join();
    }
  }

  Result<void> offer(const std::string& path);
  // Waits for successors until one of them serves, or until this process is woken.
  void serve();
  // True if that process serves now.
  bool pass_to(HandoverPeer& successor);
  void log(LogLevel level, const std::string& text) const { rpc::Inspector::log(server)(level, "handover", text); }

  Server& server;
  const HandoverOptions options;
  const int process = process_id();
  Descriptor wake;
  transport::UnixListening listening;
  std::thread thread;
};

Handover::Handover(std::unique_ptr<State> state) : state_(std::move(state)) {}
Handover::~Handover() = default;

Result<std::unique_ptr<Handover>> Handover::begin(Server& server, Predecessor predecessor, HandoverOptions options) {
  Predecessor::State& before = *predecessor.state_;
  if (rpc::Inspector::on_callers_loop(server)) {
    return handover_error(ErrorCode::invalid_argument, before.path,
                          "the server runs on a loop of the caller's, and only servers with loops of their own hand "
                          "their sockets over");
  }
  // A predecessor that has ended meanwhile does not answer. One that still serves, because this process was late,
  // offers its sockets at the path.
  const bool left =
      !before.peer || (before.peer->send(word_ready) && before.peer->receive(word_left, handover_answer_max));
  auto state = std::make_unique<State>(server, std::move(options));
  if (const Result<void> offered = state->offer(before.path); !offered) {
    if (before.peer && left) {  // Nobody else serves. To serve is more important than the next hand-over.
      state->log(LogLevel::error, "no process can take over from this one: " + offered.error().text);
      return std::unique_ptr<Handover>(new Handover(std::move(state)));
    }
    const std::string why =
        left ? "" : "the process that served before has not left (ready_max of its HandoverOptions?): ";
    return handover_error(offered.error().code, before.path, why + offered.error().text);
  }
  return std::unique_ptr<Handover>(new Handover(std::move(state)));
}

Result<void> Handover::State::offer(const std::string& path) {
  TRY(transport::SocketAddress&& address, handover_address(path));
  wake = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail(transport::socket_error(ErrorCode::unavailable, "cannot make an eventfd", errno));
  TRY(listening, transport::listen_unix(address, handover_backlog_max));
  chmod(path.c_str(), S_IRUSR | S_IWUSR);  // The users of the peers are checked too.
  try {
    thread = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    listening = {};
    return fail(Error::of_connection(ErrorCode::limit_exceeded, std::string("cannot start a thread: ") + error.what()));
  }
  return {};
}

void Handover::State::serve() {
  for (;;) {
    std::array<pollfd, 2> waits{pollfd{.fd = listening.socket.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = wake.get(), .events = POLLIN, .revents = 0}};
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[1].revents != 0) return;
    Descriptor accepted(accept4(listening.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.valid()) {  // Such as EMFILE: the queue stays readable.
      poll(&waits[1], 1, static_cast<int>(handover_retry_after.count()));
      continue;
    }
    HandoverPeer successor(std::move(accepted), wake.get());
    try {
      if (!successor.trusted() || !pass_to(successor)) continue;
    } catch (...) {  // Out of memory. This process goes on.
      continue;
    }
    listening = {};
    successor.send(word_left);
    try {
      rpc::Inspector::leave(server, options.leave_max);
    } catch (...) {  // The successor serves. stop() refuses what the clients send before they know.
    }
    server.stop(options.grace);
    if (options.taken) options.taken();
    return;
  }
}

bool Handover::State::pass_to(HandoverPeer& successor) {
  if (!successor.receive(word_take, handover_answer_max)) return false;
  const std::string name = successor.name();
  {
    const std::vector<Descriptor> sockets = rpc::Inspector::copy_listening(server);
    std::vector<int> numbers;
    for (const Descriptor& one : sockets) {
      if (one.valid()) numbers.push_back(one.get());
    }
    if (numbers.size() > handover_sockets_max) {
      log(LogLevel::error, std::to_string(numbers.size()) +
                               " listening sockets are too many for a hand-over, which has " +
                               std::to_string(handover_sockets_max) + " at most: this process goes on");
      return false;
    }
    if (numbers.empty() || numbers.size() != sockets.size() || !successor.send(word_sockets, numbers)) return false;
  }
  log(LogLevel::info, name + " has the listening sockets and starts");
  if (successor.receive(word_ready, options.ready_max) && !successor.ended()) {
    log(LogLevel::info, name + " serves: this process leaves");
    return true;
  }
  log(LogLevel::warning, name + " received the listening sockets and did not serve: this process goes on");
  return false;
}

}  // namespace hawser
