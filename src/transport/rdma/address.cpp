#include "transport/rdma/address.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace hawser::transport::rdma {
namespace {

bool is(const GidEntry& entry, RdmaAddress kind) {
  switch (kind) {
    case RdmaAddress::automatic: return true;
    case RdmaAddress::roce_v2_ipv4: return entry.type == GidType::roce_v2 && entry.gid.ipv4_mapped();
    case RdmaAddress::roce_v2_ipv6: return entry.type == GidType::roce_v2 && !entry.gid.ipv4_mapped();
    case RdmaAddress::roce_v1: return entry.type == GidType::roce_v1;
    case RdmaAddress::infiniband: return entry.type == GidType::infiniband;
  }
  return false;
}

std::string_view name_of(RdmaAddress kind) {
  switch (kind) {
    case RdmaAddress::automatic: return "automatic";
    case RdmaAddress::roce_v2_ipv4: return "roce_v2_ipv4";
    case RdmaAddress::roce_v2_ipv6: return "roce_v2_ipv6";
    case RdmaAddress::roce_v1: return "roce_v1";
    case RdmaAddress::infiniband: return "infiniband";
  }
  return "unknown";
}

std::string list(std::span<const GidEntry> addresses) {
  std::string text;
  for (const GidEntry& entry : addresses) {
    text += (text.empty() ? "" : ", ") + std::to_string(entry.index) + " " + to_string(entry.gid) + " (" +
            std::string(to_string(entry.type)) + ")";
  }
  return text.empty() ? "none" : text;
}

}  // namespace

Result<GidEntry> choose_address(const RdmaOptions& options, std::span<const GidEntry> addresses) {
  if (options.gid_index >= 0) {
    const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const GidEntry& entry) {
      return entry.index == static_cast<unsigned>(options.gid_index);
    });
    if (found != addresses.end()) return *found;
    return fail(ErrorCode::invalid_argument,
                "RdmaOptions::gid_index is " + std::to_string(options.gid_index) +
                    ", and the port has no such address, only " + list(addresses),
                ErrorScope::transport);
  }
  constexpr std::array preference = {RdmaAddress::roce_v2_ipv4, RdmaAddress::roce_v2_ipv6, RdmaAddress::infiniband,
                                     RdmaAddress::roce_v1};
  for (const RdmaAddress kind : preference) {
    if (options.address != RdmaAddress::automatic && options.address != kind) continue;
    const auto found =
        std::find_if(addresses.begin(), addresses.end(), [&](const GidEntry& entry) { return is(entry, kind); });
    if (found != addresses.end()) return *found;
  }
  if (addresses.empty()) {
    return fail(ErrorCode::unavailable, "the port has no address: give its network interface an IP address",
                ErrorScope::transport);
  }
  return fail(ErrorCode::unavailable,
              "the port has no address of RdmaOptions::address " + std::string(name_of(options.address)) + ", only " +
                  list(addresses),
              ErrorScope::transport);
}

QueuePairRoute route_with(const RdmaOptions& options) noexcept {
  return {.traffic_class = options.traffic_class,
          .service_level = options.service_level,
          .hop_limit = options.hop_limit,
          .ack_timeout = options.ack_timeout,
          .retries = options.retries,
          .rnr_retries = options.rnr_retries,
          .min_rnr_timer = options.min_rnr_timer};
}

}  // namespace hawser::transport::rdma
