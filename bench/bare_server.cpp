#include "bare_server.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "bare_socket.h"
#include "handlers.h"

namespace hawser::bench {
namespace {

// What all connections share: they take turns.
struct Shared {
  BareStream stream;
  char buffer[BareStream::bytes_max];
};

// Echoes bytes as they come; or counts them and sends 16 for each message.
class BareEcho {
 public:
  BareEcho(BareSocket socket, const BareHello& hello, Shared& shared)
      : socket_(std::move(socket)), hello_(hello), shared_(shared) {}

  int descriptor() const noexcept { return socket_.descriptor(); }
  bool ended() const noexcept { return ended_; }
  bool blocked() const noexcept { return !unsent_.empty() || owed_bytes_ > 0; }

  bool pump() {
    // Nothing more is read before all is sent: the client always reads.
    if (blocked()) return flush();
    const std::ptrdiff_t count = receive_bare(descriptor(), shared_.buffer);
    if (count <= 0) {
      ended_ = count == bare_lost;
      return false;
    }
    const auto bytes = static_cast<std::size_t>(count);
    if (hello_.ack == 0) {
      echo({shared_.buffer, bytes});
    } else {
      partial_bytes_ += bytes;
      owed_bytes_ += partial_bytes_ / hello_.size_bytes * sizeof(Ack);
      partial_bytes_ %= hello_.size_bytes;
      flush();
    }
    return true;
  }

 private:
  std::size_t send(std::string_view bytes) {
    const std::ptrdiff_t count = send_bare(descriptor(), bytes);
    ended_ = ended_ || count == bare_lost;
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }

  void echo(std::string_view bytes) {
    const std::size_t sent = send(bytes);
    if (sent < bytes.size()) [[unlikely]]
      unsent_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(sent), bytes.end());
  }

  bool flush() {
    std::size_t sent = 0;
    if (!unsent_.empty()) {
      sent = send({unsent_.data(), unsent_.size()});
      unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
    } else if (owed_bytes_ > 0) {
      const std::size_t most = std::min<std::size_t>(owed_bytes_, BareStream::bytes_max);
      sent = send(shared_.stream.window(sent_bytes_).substr(0, most));
      sent_bytes_ += sent;
      owed_bytes_ -= sent;
    }
    return sent > 0;
  }

  BareSocket socket_;
  const BareHello hello_;
  Shared& shared_;
  bool ended_ = false;
  std::vector<char> unsent_;         // With echo.
  std::uint64_t partial_bytes_ = 0;  // With ack: of the message that is on its way,
  std::uint64_t owed_bytes_ = 0;     // of replies that are due,
  std::uint64_t sent_bytes_ = 0;     // and of those sent.
};

// The connections of one cell, until the client closes them.
void serve_cell(const BareSocket& listener, Wait wait, Shared& shared) {
  std::vector<BareEcho> echoes;
  BareHello hello{.connections = 1};
  for (std::uint32_t i = 0; i < hello.connections; ++i) {
    BareSocket connection = accept_bare(listener, hello);
    if (hello.size_bytes == 0) return;  // No client of ours, or one that has died.
    echoes.reserve(hello.connections);
    echoes.emplace_back(std::move(connection), hello, shared);
  }
  pump_bare(std::span(echoes), wait, [] { return true; });
}

}  // namespace

bool play_bare_server(Wait wait, const EventWriter& events) try {
  std::string address;
  const BareSocket listener = listen_bare(address);
  const auto shared = std::make_unique<Shared>();
  events.write(Listening{address});
  while (true) serve_cell(listener, wait, *shared);
} catch (const std::exception& error) {
  events.write(Failed{std::string("bare sockets: ") + error.what()});
  return false;
}

}  // namespace hawser::bench
