#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hawser/rdma_options.h"
#include "hawser/shm_options.h"
#include "hawser/time.h"
#include "hawser/ucx_options.h"

namespace hawser {

// What may carry the messages of a connection. Peers always meet over a stream (TCP, or a Unix socket), which carries them
// unless both sides have enabled something better that leads from one to the other.
struct TransportOptions {
  std::optional<ShmOptions> shm = ShmOptions{};  // Between processes of one host.
  std::optional<RdmaOptions> rdma = {};          // Verbs: InfiniBand, RoCE.
  std::optional<UcxOptions> ucx = {};
  // Server: tried in this order; what is not named is not used. Client: what is not named is not offered. Empty: "shm",
  // "rdma", "ucx".
  std::vector<std::string> order = {};

  // Client: connect over this one only, "shm", "rdma", "ucx", or "stream" for none of them; if it can't be had, connecting
  // fails with the reason. Empty: the best that both sides have.
  std::string demand = {};

  // Client: a transport that broke while the peer lived is tried again after retry_min, doubled each time it breaks
  // again up to retry_max, and forgiven when it has held for retry_max.
  Duration retry_min = std::chrono::seconds(1);
  Duration retry_max = std::chrono::seconds(60);
};

// Why an enabled transport does not carry a connection.
struct TransportNotTaken {
  std::string transport;
  std::string reason;
};

}  // namespace hawser
