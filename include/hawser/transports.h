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

// A transport with its options, to be enabled for clients and servers: shm(), rdma(), ucx(), or one of another library
// (hawser/transport/factory.h). A value: copies name the same transport. Thread-safe.
class TransportSpec {
 public:
  // `factory` is not null.
  explicit TransportSpec(std::shared_ptr<const transport::Factory> factory) noexcept : factory_(std::move(factory)) {}
  // As in Client::transport() and TransportOptions::order.
  std::string_view name() const noexcept;
  const transport::Factory& factory() const noexcept { return *factory_; }

 private:
  std::shared_ptr<const transport::Factory> factory_;
};

TransportSpec shm(ShmOptions options = {});    // "shm": memory that two processes of one host share.
TransportSpec rdma(RdmaOptions options = {});  // "rdma": verbs over InfiniBand or RoCE.
TransportSpec ucx(UcxOptions options = {});    // "ucx": active messages of UCX.

// The transports that may carry the messages of a connection. Peers always meet over a byte stream (TCP, or a Unix
// socket). It carries the messages unless both sides have enabled a transport that leads from one to the other.
struct TransportOptions {
  // A HELLO offers at most so many: enabling more is an error.
  static constexpr std::size_t transports_max = 4;

  // Each name once. `{}`: the byte stream carries all messages.
  std::vector<TransportSpec> enabled = {shm()};
  // Server: tried in this order; a transport that is not named is not used. Client: a transport that is not named is
  // not offered. Empty: all that are enabled, shared memory, RDMA and UCX in this order, others by their rank
  // (hawser/transport/factory.h).
  std::vector<std::string> order = {};

  // Client: connect over the transport of this name only, or over none of them with "stream". If that is not possible,
  // connecting fails with the reason. Empty: the best that both sides have.
  std::string required = {};

  // Client: a transport that broke while the peer lived is tried again after retry_min. The time is doubled each time
  // it breaks again, up to retry_max, and starts anew when it has held for retry_max.
  Duration retry_min = std::chrono::seconds(1);
  Duration retry_max = std::chrono::seconds(60);

  // Adds `transport` to `enabled`, or replaces the one of the same name.
  void enable(TransportSpec transport);
  // Removes the one of that name, if there is one.
  void disable(std::string_view name);
};

// Why an enabled transport does not carry a connection.
struct TransportFallback {
  std::string transport;
  std::string reason;
};

}  // namespace hawser
