#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transport/stream.h"
#include "rpc/port/port_session.h"

namespace hawser::rpc {

class HttpStreamService;

// A protocol beside the library's own that a server speaks on its port: recognises it by the first bytes of a
// connection and makes its sessions. One for each server, shared by its loops: thread-safe by being const.
class PortProtocol {
 public:
  // Number of the first bytes that are shown to match() at most.
  static constexpr std::size_t first_bytes_max = 24;

  virtual ~PortProtocol() = default;
  // A short name without spaces, such as "http". A literal.
  virtual std::string_view name() const noexcept = 0;
  // Its name in ALPN, such as "h2". A literal. Empty: it has none.
  virtual std::string_view alpn() const noexcept { return {}; }

  // `more`: the bytes may be the beginning of this protocol. Once first_bytes_max bytes are there, `more` counts as
  // `no`. Protocols are asked in the order in which they were enabled.
  enum class Match : std::uint8_t { no, more, yes };
  virtual Match match(Bytes first) const noexcept = 0;

  // For so long a connection of this protocol may be silent before its first byte, if ServerOptions::handshake_timeout
  // is shorter. Clients of some protocols connect in advance.
  virtual Duration silence_max() const noexcept { return Duration::zero(); }

  // Makes the session of a connection whose first bytes matched. `stream` runs on host.loop and is paused; `first` has
  // been received from it already. The session begins with PortSession::on_start(). May throw.
  virtual std::unique_ptr<PortSession> open(PortHost& host, std::unique_ptr<transport::Stream> stream,
                                            Bytes first) const = 0;

  // Names for calls that are not calls of methods, such as "GET /version". They are counted as methods are.
  struct RouteNames {
    std::vector<std::string> counted;
    std::vector<std::string> others;  // Named, but not counted.
  };
  virtual RouteNames route_names() const { return {}; }

  // Serves HTTP requests on the streams of HTTP/2. Null: this protocol does not.
  virtual const HttpStreamService* http_streams() const noexcept { return nullptr; }

  // True: on a server that stops, connections become sessions, which refuse each request. Otherwise refusal() is sent.
  virtual bool refuses_requests() const noexcept { return false; }
  // The bytes that a client of this protocol understands as a refusal of the connection for the reason `why`. They are
  // sent before the connection is closed.
  virtual std::string refusal(const Error& why) const {
    static_cast<void>(why);
    return {};
  }
};

// The protocols of a server beside the library's own, in the order in which they are asked.
using ProtocolList = std::vector<std::shared_ptr<const PortProtocol>>;

}  // namespace hawser::rpc
