#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/client.h"
#include "hawser/detail/call_channel.h"
#include "hawser/transport/stream.h"

namespace hawser::rpc {

// The client's end of one connection that speaks another protocol than the library's own. Loop's thread only.
class ProtocolSession : public detail::CallChannel {
 public:
  class Owner {
   public:
    // The connection has ended, and every call has been completed. Called once.
    virtual void on_session_end(const Error& reason) = 0;
    // A call of a session without free places has ended, or the session takes no new calls any more.
    virtual void on_place() = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~ProtocolSession() = default;
  // Called once, when calls may be made.
  virtual void begin() = 0;
  // Ends the connection at once.
  virtual void end(const Error& reason) = 0;
  virtual std::size_t calls_in_flight() const noexcept = 0;
  // Calls that are accepted beside those in flight.
  virtual std::size_t free_places() const noexcept = 0;
  // The time at which a call last began or ended, or the session began.
  virtual Time last_used() const noexcept = 0;
  // True if the server has announced that it takes no new calls.
  virtual bool going_away() const noexcept { return false; }
  virtual std::string_view transport_name() const noexcept = 0;
};

// A protocol that clients speak in place of the library's own: ClientOptions::protocol. Loops share it, and it does not
// change.
class ClientProtocol {
 public:
  virtual ~ClientProtocol() = default;
  // The name for interceptors, a literal.
  virtual std::string_view name() const noexcept = 0;
  // The name in ALPN, a literal; empty: it has none.
  virtual std::string_view alpn() const noexcept { return {}; }
  // Returns the session of a connected stream. It is begun afterwards. `options` are those of the client.
  virtual std::shared_ptr<ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                                const std::string& address, const ClientOptions& options,
                                                ProtocolSession::Owner& owner) const = 0;
};

}  // namespace hawser::rpc
