#include "transport/rdma/device/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
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

Result<GidEntry> choose_address(const RdmaOptions& options, std::span<const GidEntry> addresses, const Gid& preferred) {
  if (options.gid_index >= 0) {
    const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const GidEntry& entry) {
      return entry.index == static_cast<unsigned>(options.gid_index);
    });
    if (found != addresses.end()) return *found;
    return fail(Error::of_transport(ErrorCode::invalid_argument,
                                    "RdmaOptions::gid_index is " + std::to_string(options.gid_index) +
                                        ", and the port has no such address, only " + list(addresses)));
  }
  constexpr std::array preference = {RdmaAddress::roce_v2_ipv4, RdmaAddress::roce_v2_ipv6, RdmaAddress::infiniband,
                                     RdmaAddress::roce_v1};
  for (const bool wished : {true, false}) {
    if (wished && preferred.zero()) continue;
    for (const RdmaAddress kind : preference) {
      if (options.address != RdmaAddress::automatic && options.address != kind) continue;
      const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const GidEntry& entry) {
        return is(entry, kind) && (!wished || entry.gid == preferred);
      });
      if (found != addresses.end()) return *found;
    }
  }
  if (addresses.empty()) {
    return fail(Error::of_transport(ErrorCode::unavailable,
                                    "the port has no address: give its network interface an IP address"));
  }
  return fail(Error::of_transport(ErrorCode::unavailable, "the port has no address of RdmaOptions::address " +
                                                              std::string(name_of(options.address)) + ", only " +
                                                              list(addresses)));
}

std::optional<Gid> gid_of(std::string_view local) {
  const std::size_t colon = local.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string host(local.substr(0, colon));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (const std::size_t zone = host.find('%'); zone != std::string::npos) host.resize(zone);
  Gid gid;
  in_addr four{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) {
    gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
    std::memcpy(gid.bytes.data() + 12, &four, 4);
    if (gid.bytes[12] == std::byte{127}) return std::nullopt;
    return gid;
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, host.c_str(), &six) != 1 || IN6_IS_ADDR_LOOPBACK(&six)) return std::nullopt;
  std::memcpy(gid.bytes.data(), &six, 16);
  return gid;
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
