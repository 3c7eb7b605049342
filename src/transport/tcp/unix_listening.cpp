#include "transport/tcp/unix_listening.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "os/passed_descriptors.h"

namespace hawser::transport {
namespace {

// Serializes servers that start at one path. Between the check of the file and its replacement, and between binding and
// listening, no other server may check the file. The lock is a file beside the socket, which is removed when the lock
// ends. It is not the folder: a program may have locked the folder of its data and of its socket for all of its life.
class StartLock {
 public:
  // A server holds the lock for some microseconds. A process that holds it for longer than this is not a Hawser server.
  static constexpr auto wait_max = std::chrono::milliseconds(300);

  explicit StartLock(const char* path) {
    const std::string_view whole(path);
    const std::size_t name = whole.rfind('/') + 1;  // 0 without a folder.
    file_ = std::string(whole.substr(0, name)).append(".").append(whole.substr(name)).append(".starting");
    const auto end = std::chrono::steady_clock::now() + wait_max;
    while (!(held_ = acquire()) && busy_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  StartLock(const StartLock&) = delete;
  StartLock& operator=(const StartLock&) = delete;
  ~StartLock() {
    if (!held_) return;
    unlink(file_.c_str());
    flock(opened_.get(), LOCK_UN);  // A child after fork() may still have the descriptor.
  }
  // Another process holds the lock. False also if the file cannot be made; then there is no lock.
  bool busy() const noexcept { return !held_ && busy_; }
  const std::string& file() const noexcept { return file_; }

 private:
  // Who had the lock before has removed its file: a lock of a removed file is none.
  bool acquire() noexcept {
    opened_ = Descriptor(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    const bool locked = opened_.valid() && flock(opened_.get(), LOCK_EX | LOCK_NB) == 0;
    busy_ = locked || (opened_.valid() && errno == EWOULDBLOCK);
    struct stat mine{};
    struct stat there{};
    return locked && fstat(opened_.get(), &mine) == 0 && lstat(file_.c_str(), &there) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
  }

  std::string file_;
  Descriptor opened_;
  bool held_ = false;
  bool busy_ = false;
};

// True if no process listens on the socket file any more.
bool is_left_behind(const SocketAddress& address) noexcept {
  const Descriptor asking(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return asking.valid() && connect(asking.get(), address.get(), address.size) != 0 && errno == ECONNREFUSED;
}

}  // namespace

SocketFile::SocketFile(std::string path) noexcept : path_(std::move(path)), owner_(getpid()) { find(device_, number_); }

SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), device_(other.device_), number_(other.number_), owner_(other.owner_) {}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(device_, other.device_);
  std::swap(number_, other.number_);
  std::swap(owner_, other.owner_);
  return *this;
}

SocketFile::~SocketFile() {
  if (in_place()) unlink(path_.c_str());
}

bool SocketFile::in_place() const noexcept {
  dev_t device = 0;
  ino_t number = 0;
  return owner_ == getpid() && find(device, number) && device == device_ && number == number_;
}

bool SocketFile::find(dev_t& device, ino_t& number) const noexcept {
  struct stat status{};
  if (path_.empty() || lstat(path_.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  device = status.st_dev;
  number = status.st_ino;
  return true;
}

Result<UnixListening> listen_unix(const SocketAddress& address, int backlog) {
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail(socket_error(ErrorCode::unavailable, "cannot make a socket", errno));
  refuse_descriptors(socket.get());
  const auto& name = reinterpret_cast<const sockaddr_un&>(address.storage);
  const bool has_file = name.sun_path[0] != '\0';
  std::optional<StartLock> lock;
  if (has_file) lock.emplace(name.sun_path);
  int error = bind(socket.get(), address.get(), address.size) == 0 ? 0 : errno;
  if (error == EADDRINUSE && has_file) {
    struct stat status{};
    if (lstat(name.sun_path, &status) == 0 && !S_ISSOCK(status.st_mode)) {
      return fail(Error::of_connection(ErrorCode::unavailable,
                                       "cannot listen on " + to_string(address) + ": there is a file, and no socket"));
    }
    if (lock->busy()) {
      return fail(
          Error::of_connection(ErrorCode::unavailable, "cannot listen on " + to_string(address) +
                                                           ": there is a file, and another process has locked " +
                                                           lock->file() + " (flock): end that process"));
    }
    if (is_left_behind(address)) {
      unlink(name.sun_path);
      error = bind(socket.get(), address.get(), address.size) == 0 ? 0 : errno;
    }
  }
  UnixListening listening{std::move(socket), error == 0 && has_file ? SocketFile(name.sun_path) : SocketFile()};
  if (error == 0 && ::listen(listening.socket.get(), backlog) != 0) error = errno;
  if (error != 0) {
    return fail(socket_error(ErrorCode::unavailable, "cannot listen on " + to_string(address), error));
  }
  // Without the lock, another server may have regarded this socket as left behind, because it did not listen yet.
  if (has_file && !listening.file.in_place()) {
    return fail(Error::of_connection(
        ErrorCode::unavailable, "cannot listen on " + to_string(address) + ": another server has replaced the file"));
  }
  return listening;
}

}  // namespace hawser::transport
