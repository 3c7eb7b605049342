#include "cluster/xds/assignment_reader.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/try.h"
#include "cluster/xds/xds_fields.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::ProtoField;

constexpr std::uint64_t unknown_health = 0;     // HealthStatus: no checks are made, or none has ended.
constexpr std::uint64_t healthy = 1;            // HealthStatus
constexpr std::uint64_t udp_protocol = 1;       // SocketAddress.Protocol
constexpr double weight_of_heaviest = 100'000;  // In a priority whose endpoints differ.

Result<std::string> read_socket_address(std::string_view message) {
  std::string host;
  std::uint64_t port = 0;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    switch (field.number) {
      case 1:
        if (field.value == udp_protocol) return refuse_resource("an endpoint has an address of UDP");
        break;
      case 2: host = field.bytes; break;
      case 3: port = field.value; break;
      case 4: return refuse_resource("an endpoint has a named port, which is not supported");
      default: break;
    }
    return {};
  };
  TRY(read_fields(message, visit));
  if (host.contains(':')) host = "[" + host + "]";
  return host + ":" + std::to_string(port);
}

// Address.
Result<std::string> read_address(std::string_view message) {
  TRY(const std::string_view socket, read_bytes(message, 1));
  if (!socket.empty()) return read_socket_address(socket);
  TRY(const std::string_view pipe, read_bytes(message, 2));
  TRY(const std::string_view path, read_bytes(pipe, 1));
  if (path.empty()) return refuse_resource("an endpoint has no address and port, and no pipe");
  return "unix:" + std::string(path);
}

// LbEndpoint.
struct ServingEndpoint {
  std::string address;
  std::uint64_t weight = 1;
  bool serves = false;
};
Result<ServingEndpoint> read_endpoint(std::string_view message) {
  std::string_view endpoint;
  std::uint64_t health = unknown_health;
  ServingEndpoint read;
  const auto visit = [&](const ProtoField& field) -> Result<void> {
    if (field.number == 1) endpoint = field.bytes;
    if (field.number == 2) health = field.value;
    if (field.number == 4) return assign(read.weight, read_wrapped_number(field.bytes));
    return {};
  };
  TRY(read_fields(message, visit));
  TRY(const std::string_view place, read_bytes(endpoint, 1));
  TRY(read.address, read_address(place));
  if (read.weight == 0) return refuse_resource("an endpoint has the weight 0");
  read.serves = health == unknown_health || health == healthy;
  return read;
}

// Locality.
Result<std::string> read_zone(std::string_view message) {
  TRY(const std::string_view zone, read_bytes(message, 2));
  if (zone.size() <= EndpointLimits::zone_bytes_max) return std::string(zone);
  return refuse_resource("a zone has " + std::to_string(zone.size()) + " bytes, more than " +
                         std::to_string(EndpointLimits::zone_bytes_max));
}

// The part of the calls of a priority for an endpoint of a locality, relative to others.
double share_of(std::uint64_t locality_weight, std::uint64_t weight, double weights) noexcept {
  return static_cast<double>(locality_weight) * static_cast<double>(weight) / weights;
}

}  // namespace

Result<bool> AssignmentReader::work() {
  for (std::size_t i = 0; i < endpoints_of_step && part_ != Part::whole; ++i) {
    switch (part_) {
      case Part::assignment: TRY(read_field_of_assignment()); break;
      case Part::locality: TRY(read_field_of_locality()); break;
      case Part::lists: place_endpoint(); break;
      case Part::whole: break;
    }
  }
  return part_ != Part::whole;
}

Result<void> AssignmentReader::read_field_of_assignment() {
  if (const std::optional<ProtoField> field = fields_.next()) {
    if (field->number != 2) return {};
    locality_ = {};
    locality_fields_.emplace(field->bytes);
    fits_ = true;
    part_ = Part::locality;
    return {};
  }
  if (fields_.malformed()) return refuse_resource("a message is malformed");
  if (!std::ranges::is_sorted(priorities_, std::greater(), &Priority::used)) {
    return refuse_resource("a priority is missing: they must be 0, 1, 2 and so on");
  }
  endpoints_.reserve(count_);
  part_ = count_ == 0 ? Part::whole : Part::lists;
  return {};
}

// A locality with the weight 0 may lack endpoints, or have too many: it gets no calls.
Result<void> AssignmentReader::read_field_of_locality() {
  const std::optional<ProtoField> field = locality_fields_->next();
  if (!field) return end_locality();
  switch (field->number) {
    case 1: return assign(locality_.zone, read_zone(field->bytes));
    case 2: {
      if (!fits_) break;
      TRY(ServingEndpoint one, read_endpoint(field->bytes));
      if (!one.serves) break;
      locality_.weights += static_cast<double>(one.weight);
      locality_.weight_least = locality_.endpoints.empty() ? one.weight : std::min(locality_.weight_least, one.weight);
      locality_.weight_most = std::max(locality_.weight_most, one.weight);
      locality_.endpoints.emplace_back(std::move(one.address), one.weight);
      fits_ = locality_.endpoints.size() + count_ + others_ <= EndpointLimits::endpoints_max;
      break;
    }
    case 3: return assign(locality_.weight, read_wrapped_number(field->bytes));
    case 5: locality_.priority = field->value; break;
    default: break;
  }
  return {};
}

Result<void> AssignmentReader::end_locality() {
  if (locality_fields_->malformed()) return refuse_resource("a message is malformed");
  part_ = Part::assignment;
  if (!fits_ && locality_.weight != 0) {
    return refuse_resource(
        "more than " + std::to_string(EndpointLimits::endpoints_max) + " endpoints serve" +
        (others_ == 0 ? "" : ", of which other clusters of the name have " + std::to_string(others_)));
  }
  if (locality_.priority > EndpointLimits::priority_max) {
    return refuse_resource("the priority " + std::to_string(locality_.priority) + " is above " +
                           std::to_string(EndpointLimits::priority_max));
  }
  if (locality_.weight == 0) return {};
  Priority& priority = priorities_[locality_.priority];
  priority.used = true;
  if (locality_.endpoints.empty()) return {};
  const double least = share_of(locality_.weight, locality_.weight_least, locality_.weights);
  priority.share_least = priority.localities.empty() ? least : std::min(priority.share_least, least);
  priority.share_most =
      std::max(priority.share_most, share_of(locality_.weight, locality_.weight_most, locality_.weights));
  priority.localities.push_back(localities_.size());
  count_ += locality_.endpoints.size();
  localities_.push_back(std::move(locality_));
  return {};
}

// The calls of a locality go to its endpoints by their weights. The weights of a list are relative to the heaviest
// endpoint of the priority.
void AssignmentReader::place_endpoint() {
  while (priorities_[priority_].localities.empty()) ++priority_;  // One has the endpoints that are left.
  const Priority& priority = priorities_[priority_];
  Locality& locality = localities_[priority.localities[place_]];
  auto& [address, weight] = locality.endpoints[next_];
  const double most = priority.share_most;
  const double scale = most - priority.share_least < most * 1e-9 ? 1 / most : weight_of_heaviest / most;
  const double share = share_of(locality.weight, weight, locality.weights);
  endpoints_.push_back({.address = std::move(address),
                        .weight = static_cast<std::uint32_t>(std::max(1.0, std::round(share * scale))),
                        .priority = static_cast<std::uint32_t>(priority_),
                        .zone = locality.zone});
  if (++next_ == locality.endpoints.size()) {
    next_ = 0;
    if (++place_ == priority.localities.size()) {
      place_ = 0;
      ++priority_;
    }
  }
  if (endpoints_.size() == count_) part_ = Part::whole;
}

Result<std::vector<Endpoint>> read_load_assignment(std::string_view message, std::size_t others) {
  AssignmentReader reader(message, others);
  for (;;) {
    TRY(const bool more, reader.work());
    if (!more) return reader.take();
  }
}

}  // namespace hawser::cluster
