#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/transport/stream.h"
#include "hawser/transport/transport.h"
#include "hawser/transports.h"

namespace hawser::transport {

// Takes the streams that a listener accepts, on the listener's loop.
class AcceptSink {
 public:
  virtual void accepted(std::unique_ptr<Stream> stream) = 0;

 protected:
  ~AcceptSink() = default;
};

// Accepts until it is destroyed. Belongs to the loop that it was made on.
class Listener {
 public:
  virtual ~Listener() = default;
  // With the port that was really taken.
  virtual std::string address() const = 0;
};

// All that rpc knows of the outside: where streams come from. Shared between loops, so thread-safe.
class Network {
 public:
  virtual ~Network() = default;

  virtual Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) = 0;
  // A connected stream that has not been started. Gives up after `timeout`. Dropping the task withdraws the attempt.
  virtual Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) = 0;

  // The transports that the options enable, by rank. TransportOptions::order and demand make no difference here.
  virtual std::vector<std::shared_ptr<Transport>> transports(const TransportOptions&) { return {}; }
  // Names that TransportOptions::order and demand may use though no such transport is enabled.
  virtual std::vector<std::string_view> transport_names() const { return {}; }
};

}  // namespace hawser::transport
