#include "cli/call/server_name.h"
#include "hawser/etcd.h"
#include "hawser/xds.h"

namespace hawser::cli {

std::vector<NamingScheme> naming_schemes() {
  std::vector<NamingScheme> schemes = default_naming();
  schemes.push_back(etcd_naming());
  schemes.push_back(xds_naming());
  return schemes;
}

}  // namespace hawser::cli
