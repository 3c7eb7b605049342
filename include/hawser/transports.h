#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/rdma_options.h"
#include "hawser/shm_options.h"
#include "hawser/time.h"
#include "hawser/ucx_options.h"

namespace hawser {

namespace transport {
class Factory;
}

// A transport with its options, for enable() of clients and servers: shm(), rdma(), ucx(), or a transport of another
// library (hawser/transport/factory.h). A value: copies name the same transport. Thread-safe.
class TransportSpec {
 public:
  // `factory` must not be null.
  explicit TransportSpec(std::shared_ptr<const transport::Factory> factory) noexcept : factory_(std::move(factory)) {}
  // The name as in Client::transport() and TransportOptions::order.
  std::string_view name() const noexcept;
  const transport::Factory& factory() const noexcept { return *factory_; }

 private:
  std::shared_ptr<const transport::Factory> factory_;
};

TransportSpec shm(ShmOptions options = {});    // "shm": memory that two processes of one host share.
TransportSpec rdma(RdmaOptions options = {});  // "rdma": verbs over InfiniBand or RoCE.
TransportSpec ucx(UcxOptions options = {});    // "ucx": active messages of UCX.

// The transports that may carry the messages of a connection. Peers always meet over a byte stream (TCP or a Unix
// socket). The byte stream carries the messages, unless both sides have enabled a transport that connects them.
struct TransportOptions {
  // Number of transports that a HELLO can offer. Enabling more is an error.
  static constexpr std::size_t transports_max = 4;

  // Each name at most once. `{}`: the byte stream carries all messages.
  std::vector<TransportSpec> enabled = {shm()};
  // Names in order of preference. Server: the order in which transports are tried; a transport that is not named is not
  // used. Client: a transport that is not named is not offered. Empty: all enabled transports, in the order shared
  // memory, RDMA, UCX, then others by their rank (hawser/transport/factory.h).
  std::vector<std::string> order = {};

  // Client: name of a required transport; "stream" requires the byte stream alone. If it cannot be used, connecting
  // fails with the reason. Empty: the best transport that both sides have.
  std::string required = {};

  // Client: a transport that broke while the peer lived is tried again after retry_min, at least 1 ms. The time doubles
  // each time the transport breaks again, up to retry_max. It is reset when the transport has worked for retry_max.
  Duration retry_min = std::chrono::seconds(1);
  Duration retry_max = std::chrono::seconds(60);

  // Adds `transport` to `enabled`. Replaces a transport of the same name.
  void enable(TransportSpec transport);
  // Removes the transport of that name, if it is enabled.
  void disable(std::string_view name);
};

// Why an enabled transport does not carry a connection.
struct TransportFallback {
  std::string transport;
  std::string reason;
};

}  // namespace hawser
