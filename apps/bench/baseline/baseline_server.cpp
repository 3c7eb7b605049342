#include "bench/baseline/baseline_server.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "bench/baseline/baseline_ring.h"
#include "bench/baseline/baseline_socket.h"
#include "bench/baseline/baseline_tls.h"
#include "bench/load/handlers.h"

namespace hawser::bench {
namespace {

// State that all connections share. They run in turn, on one thread.
struct ServerState {
  BaselineStream stream;
  char buffer[BaselineStream::bytes_max];  // Receive buffer of all sockets.
};

// Echoes bytes as they arrive, or counts them and sends 16 bytes for each message.
template <class Channel>
class BaselineEcho {
 public:
  BaselineEcho(Channel channel, const BaselineHello& hello, ServerState& shared)
      : channel_(std::move(channel)), hello_(hello), shared_(shared) {}

  int descriptor() const noexcept { return channel_.descriptor(); }
  bool ended() const noexcept { return channel_.lost(); }
  bool blocked() const noexcept { return !unsent_.empty() || owed_bytes_ > 0; }

  bool pump() {
    // Nothing more is read before everything is sent. This can not deadlock, since the client always reads.
    if (blocked()) return flush();
    const std::string_view bytes = channel_.receive(hello_.ack == 0 ? channel_.room() : BaselineStream::bytes_max);
    if (bytes.empty()) return false;
    if (hello_.ack == 0) {
      echo(bytes);
    } else {
      partial_bytes_ += bytes.size();
      owed_bytes_ += partial_bytes_ / hello_.size_bytes * sizeof(Ack);
      partial_bytes_ %= hello_.size_bytes;
      flush();
    }
    return true;
  }

 private:
  void echo(std::string_view bytes) {
    const std::size_t sent = channel_.send(bytes);
    if (sent < bytes.size()) [[unlikely]]
      unsent_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(sent), bytes.end());
  }

  bool flush() {
    std::size_t sent = 0;
    if (!unsent_.empty()) {
      sent = channel_.send({unsent_.data(), unsent_.size()});
      unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
    } else if (owed_bytes_ > 0) {
      const std::size_t most = std::min<std::size_t>(owed_bytes_, BaselineStream::bytes_max);
      sent = channel_.send(shared_.stream.window(sent_bytes_).substr(0, most));
      sent_bytes_ += sent;
      owed_bytes_ -= sent;
    }
    return sent > 0;
  }

  Channel channel_;
  const BaselineHello hello_;
  ServerState& shared_;
  std::vector<char> unsent_;         // Used with echo.
  std::uint64_t partial_bytes_ = 0;  // Used with ack: bytes received of a message that is not complete,
  std::uint64_t owed_bytes_ = 0;     // bytes of replies to be sent,
  std::uint64_t sent_bytes_ = 0;     // and bytes of replies that have been sent.
};

// Serves the connections of one cell until the client closes them.
template <class Channel, class Make, class Pump>
void serve_cell(const BaselineSocket& listener, ServerState& shared, Make make, Pump pump) {
  std::vector<BaselineEcho<Channel>> echoes;
  BaselineHello hello{.connections = 1};
  for (std::uint32_t i = 0; i < hello.connections; ++i) {
    BaselineSocket connection = accept_baseline(listener, hello);
    if (hello.size_bytes == 0) return;  // The peer is not a client of this program, or it has ended.
    echoes.reserve(hello.connections);
    echoes.emplace_back(make(std::move(connection)), hello, shared);
  }
  pump(std::span(echoes));
}

void serve_sockets(const BaselineSocket& listener, Wait wait, ServerState& shared) {
  serve_cell<SocketChannel>(
      listener, shared, [&](BaselineSocket socket) { return SocketChannel(std::move(socket), shared.buffer); },
      [&](auto echoes) { pump_baseline(echoes, wait, [] { return true; }); });
}

void serve_tls(const BaselineSocket& listener, Wait wait, ServerState& shared) {
  serve_cell<TlsChannel>(
      listener, shared, [&](BaselineSocket socket) { return TlsChannel::serve(std::move(socket), shared.buffer); },
      [&](auto echoes) { pump_baseline(echoes, wait, [] { return true; }); });
}

void serve_rings(const BaselineSocket& listener, ServerState& shared) {
  serve_cell<RingChannel>(
      listener, shared, [](BaselineSocket socket) { return RingChannel::serve(std::move(socket)); },
      [](auto echoes) { pump_rings(echoes, [] { return true; }); });
}

}  // namespace

bool play_baseline_server(const Cell& cell, const EventWriter& events) try {
  std::string address;
  const BaselineSocket listener = listen_baseline(address, cell.transport == "unix");
  const auto shared = std::make_unique<ServerState>();
  events.write(Listening{address});
  while (cell.transport == "shm") serve_rings(listener, *shared);
  while (cell.transport == "tls") serve_tls(listener, cell.wait, *shared);
  while (true) serve_sockets(listener, cell.wait, *shared);
} catch (const std::exception& error) {
  events.write(Failed{std::string("baseline: ") + error.what()});
  return false;
}

}  // namespace hawser::bench
