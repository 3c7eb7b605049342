#include "local_transport.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "hawser/transport/factory.h"
#include "hawser/transport/framed.h"
#include "hawser/transport/transport.h"
#include "local_stream.h"

namespace local_transport {
namespace {

using namespace hawser;
using namespace hawser::transport;

constexpr std::string_view name = "local";
constexpr std::string_view server_parameters = "hawser local 1";
constexpr std::size_t secret_bytes = 16;
using Secret = std::array<std::byte, secret_bytes>;

std::vector<std::byte> bytes_of(std::string_view text) { return {as_bytes(text).begin(), as_bytes(text).end()}; }

// Identifies the network namespace and the running kernel: abstract names of Unix sockets are visible within these.
std::string host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  struct stat space{};
  if (id.empty() || ::stat("/proc/self/ns/net", &space) != 0) return {};
  return id + "/" + std::to_string(space.st_ino);
}

std::string system_error(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

Socket unix_socket() { return Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

std::unique_ptr<Connection> make_connection(Loop& loop, Socket socket, std::unique_ptr<Stream> beside,
                                            const MessageLimits& limits) {
  auto stream = std::make_unique<LocalStream>(std::move(socket), std::move(beside));
  return make_framed_connection(loop, std::move(stream), limits);
}

// Client: listens at a name that the system chose. The server proves its identity by the secret.
class ClientPendingConnection final : public PendingConnection {
 public:
  ClientPendingConnection(Loop& loop, const MessageLimits& limits) : loop_(loop), limits_(limits) {}

  Result<void> listen() {
    listening_ = unix_socket();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t size = sizeof address.sun_family;  // Without a name, the system chooses one.
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (!listening_.valid() || ::bind(listening_.get(), any, size) != 0 || ::listen(listening_.get(), backlog) != 0) {
      return fail(Error::of_transport(ErrorCode::unavailable, system_error("no Unix socket to listen on")));
    }
    size = sizeof address;
    if (::getsockname(listening_.get(), any, &size) != 0 ||
        ::getrandom(secret_.data(), secret_.size(), 0) != static_cast<ssize_t>(secret_.size())) {
      return fail(Error::of_transport(ErrorCode::unavailable, system_error("no name for a Unix socket")));
    }
    const auto* const path = reinterpret_cast<const std::byte*>(address.sun_path);
    parameters_.assign(secret_.begin(), secret_.end());
    parameters_.insert(parameters_.end(), path, path + size - offsetof(sockaddr_un, sun_path));
    return {};
  }
  std::vector<std::byte> parameters() const override { return parameters_; }
  void connect(Bytes, Ready ready) override { ready(fail(ErrorCode::internal, "a client does not connect")); }
  // The server has connected and has sent the secret before this call.
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    Socket socket;
    for (int i = 0; i < backlog && !socket.valid(); ++i) {
      Socket one(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!one.valid()) break;
      Secret theirs;
      const ssize_t got = ::recv(one.get(), theirs.data(), theirs.size(), MSG_DONTWAIT);
      if (got == static_cast<ssize_t>(theirs.size()) && theirs == secret_) socket = std::move(one);
    }
    return make_connection(loop_, std::move(socket), std::move(stream), limits_);
  }

 private:
  static constexpr int backlog = 16;
  Loop& loop_;
  const MessageLimits limits_;
  Socket listening_;
  Secret secret_{};
  std::vector<std::byte> parameters_;
};

class ServerPendingConnection final : public PendingConnection {
 public:
  ServerPendingConnection(Loop& loop, const MessageLimits& limits, const LocalOptions& options)
      : loop_(loop), limits_(limits), options_(options) {}

  std::vector<std::byte> parameters() const override { return bytes_of(server_parameters); }
  // Connecting to a Unix socket does not block.
  void connect(Bytes client, Ready ready) override { ready(connect_to(client)); }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    return make_connection(loop_, std::move(socket_), std::move(stream), limits_);
  }

 private:
  Result<void> connect_to(Bytes client) {
    sockaddr_un address{};
    if (client.size() <= secret_bytes + 1 || client.size() - secret_bytes > sizeof address.sun_path ||
        client[secret_bytes] != std::byte{0}) {
      return fail(
          Error::of_transport(Initiator::peer, ErrorCode::protocol_error,
                              "invalid parameters of transport local: " + std::to_string(client.size()) + " bytes"));
    }
    const Bytes path = client.subspan(secret_bytes);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    socket_ = unix_socket();
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    if (!socket_.valid() || ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      return fail(
          Error::of_transport(ErrorCode::unavailable, system_error("cannot connect to the client's Unix socket")));
    }
    const int buffer = static_cast<int>(std::min<std::size_t>(options_.send_buffer_bytes, 1U << 30));
    if (buffer != 0) ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (::send(socket_.get(), client.data(), secret_bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(secret_bytes)) {
      return fail(Error::of_transport(ErrorCode::unavailable, system_error("cannot send the secret")));
    }
    return {};
  }

  Loop& loop_;
  const MessageLimits limits_;
  const LocalOptions options_;
  Socket socket_;
};

class LocalSocketWorker final : public TransportWorker {
 public:
  LocalSocketWorker(Loop& loop, const LocalOptions& options, std::string host)
      : loop_(loop), options_(options), host_(std::move(host)) {}
  std::vector<std::byte> offer() override { return bytes_of(host_); }
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override {
    if (as_text(offer) != host_) {
      return fail(Error::of_transport(ErrorCode::unavailable,
                                      "the client is on another host, or in another network namespace"));
    }
    return std::make_unique<ServerPendingConnection>(loop_, limits, options_);
  }
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override {
    if (as_text(server) != server_parameters) {
      return fail(Error::of_transport(Initiator::peer, ErrorCode::protocol_error,
                                      "the server speaks another version of transport local"));
    }
    auto pending = std::make_unique<ClientPendingConnection>(loop_, limits);
    if (Result<void> listening = pending->listen(); !listening) return std::unexpected(std::move(listening.error()));
    return pending;
  }

 private:
  Loop& loop_;
  const LocalOptions options_;
  const std::string host_;
};

class LocalSocketTransport final : public Transport {
 public:
  explicit LocalSocketTransport(const LocalOptions& options) : options_(options) {}
  std::string_view name() const noexcept override { return local_transport::name; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    std::string here = host();
    if (here.empty()) {
      return fail(Error::of_transport(ErrorCode::unavailable, "/proc does not tell which host this is: mount it"));
    }
    return std::make_shared<LocalSocketWorker>(loop, options_, std::move(here));
  }

 private:
  const LocalOptions options_;
};

std::shared_ptr<Transport> make_local(const LocalOptions& options) {
  return std::make_shared<LocalSocketTransport>(options);
}

}  // namespace

hawser::TransportSpec local(LocalOptions options) { return make_spec({.name = name}, options, &make_local); }

}  // namespace local_transport
