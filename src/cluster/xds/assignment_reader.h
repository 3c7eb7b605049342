#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/naming.h"
#include "protocol/grpc/proto_bytes.h"

namespace hawser::cluster {

// Reads a ClusterLoadAssignment in steps, so that a long one does not block a loop: the endpoints that serve, at most
// EndpointLimits::endpoints_max together with those of other clusters of the name. Their weights contain those of the
// localities.
class AssignmentReader {
 public:
  static constexpr std::size_t endpoints_of_step = 256;

  // `message` outlives this object. `others`: the endpoints of other clusters.
  explicit AssignmentReader(std::string_view message, std::size_t others = 0) : fields_(message), others_(others) {}

  // Does a bounded part of the work. True if there is more. Fails with the text for the control plane if the message is
  // malformed or demands what is not supported.
  Result<bool> work();
  // The endpoints, when work() has returned false.
  std::vector<Endpoint> take() { return std::move(endpoints_); }

 private:
  // LocalityLbEndpoints.
  struct Locality {
    std::string zone = {};
    std::uint64_t weight = 0;
    std::uint64_t priority = 0;
    double weights = 0;  // Sum of those of the endpoints that serve.
    std::uint64_t weight_least = 0;
    std::uint64_t weight_most = 0;
    std::vector<std::pair<std::string, std::uint64_t>> endpoints = {};  // Addresses, and weights from 1 on.
  };
  // The localities with one priority that get calls.
  struct Priority {
    bool used = false;
    double share_least = 0;
    double share_most = 0;
    std::vector<std::size_t> localities = {};  // Their indices; without those that have no endpoint.
  };
  enum class Part : std::uint8_t { assignment, locality, lists, whole };

  Result<void> read_field_of_assignment();
  Result<void> read_field_of_locality();
  Result<void> end_locality();
  void place_endpoint();

  Part part_ = Part::assignment;
  protocol::grpc::ProtoFields fields_;
  std::optional<protocol::grpc::ProtoFields> locality_fields_;
  const std::size_t others_;
  Locality locality_;  // Is being read.
  bool fits_ = true;   // Its endpoints do, together with all others. Its weight may be behind them.
  std::vector<Locality> localities_;
  std::size_t count_ = 0;  // Endpoints of these.
  std::array<Priority, EndpointLimits::priority_max + 1> priorities_;
  // The next endpoint for the list: its priority, the place of its locality in that, and its own place there.
  std::size_t priority_ = 0;
  std::size_t place_ = 0;
  std::size_t next_ = 0;
  std::vector<Endpoint> endpoints_;
};

// In one step.
Result<std::vector<Endpoint>> read_load_assignment(std::string_view message, std::size_t others = 0);

}  // namespace hawser::cluster
