#include "cluster/etcd/etcd_name.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/try.h"
#include "cluster/endpoint_text.h"

namespace hawser::cluster {
namespace {

constexpr std::size_t members_max = 32;
constexpr std::size_t service_bytes_max = 1024;

}  // namespace

Result<EtcdName> parse_etcd_name(std::string_view target) {
  const std::size_t slash = target.find('/');
  if (slash == std::string_view::npos || slash + 1 == target.size()) {
    return fail(ErrorCode::invalid_argument,
                "the name has no service: write etcd://host:port,host:port/name/of/the/service");
  }
  std::string_view service = target.substr(slash + 1);
  if (service.ends_with('/')) service.remove_suffix(1);
  if (service.empty() || service.size() > service_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the name of the service has " + std::to_string(service.size()) +
                                                 " bytes, and not from 1 to " + std::to_string(service_bytes_max));
  }
  TRY(std::vector<Endpoint> members, parse_endpoint_list(target.substr(0, slash)));
  if (members.empty() || members.size() > members_max) {
    return fail(ErrorCode::invalid_argument, "the name has " + std::to_string(members.size()) +
                                                 " members of etcd, and not from 1 to " + std::to_string(members_max) +
                                                 ": write etcd://host:port,host:port/" + std::string(service));
  }
  EtcdName name{.members = {}, .prefix = std::string(service) + "/"};
  for (Endpoint& member : members) name.members.push_back(std::move(member.address));
  return name;
}

}  // namespace hawser::cluster
