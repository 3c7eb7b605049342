#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/transport/stream.h"
#include "hawser/transport/transport.h"
#include "hawser/transports.h"

namespace hawser::transport {

// Receives the streams that a listener accepts, on the listener's loop.
class AcceptSink {
 public:
  virtual void accepted(std::unique_ptr<Stream> stream) = 0;

 protected:
  ~AcceptSink() = default;
};

// Accepts streams until it is destroyed. Belongs to the loop on which it was made.
class Listener {
 public:
  virtual ~Listener() = default;
  // The address with the port that the listener uses.
  virtual std::string address() const = 0;
  // Copies of the listening sockets, for another process. Empty if there are none, as in a simulated network.
  virtual std::vector<Descriptor> copies() { return {}; }
  // Accepts some of the connections that wait in the kernel, before the end of this object would reset them. Not those
  // of a socket that another process may have too: they wait for that process. Returns true if more may wait: it is
  // called again in a later turn of the loop.
  virtual bool accept_waiting() { return false; }
  // Another process goes on listening: the end of this object does not remove the file of a Unix socket.
  virtual void keep_file() noexcept {}
};

// Source of streams and transports: the only view that rpc has of the outside. Loops share it, so it is thread-safe.
class Network {
 public:
  virtual ~Network() = default;

  virtual Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) = 0;
  // Returns a connected stream that has not been started. Fails after `timeout`. Destroying the task cancels the
  // attempt.
  virtual Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) = 0;

  // Returns the transports that the options enable, sorted by rank. TransportOptions::order and required do not affect
  // the result.
  virtual std::vector<std::shared_ptr<Transport>> transports(const TransportOptions&) { return {}; }
  // Names that TransportOptions::order and required may contain although no such transport is enabled.
  virtual std::vector<std::string_view> transport_names() const { return {}; }
};

}  // namespace hawser::transport
