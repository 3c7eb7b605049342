#include "transport/ucx/core/ucx_lanes.h"

#include <cstdlib>
#include <sstream>

namespace hawser::transport {

std::string ucx_printed(const std::function<void(std::FILE*)>& print) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = ::open_memstream(&text, &size);
  if (file == nullptr) return {};
  print(file);
  std::fclose(file);
  std::string copy(text, size);
  std::free(text);
  return copy;
}

// Reads lines such as "#  lane[0]:  2:tcp/lo.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0 wireup".
std::vector<UcxReport::Transport> ucx_lanes(const UcpLibrary& ucp, ucp_ep_h endpoint) {
  const std::string text = ucx_printed([&](std::FILE* file) { ucp.ep_print_info(endpoint, file); });
  std::vector<UcxReport::Transport> lanes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, lane, resource, memory_domain, arrow, peer;
    if (!(words >> hash >> lane >> resource >> memory_domain >> arrow >> peer) || !lane.starts_with("lane[")) continue;
    const std::size_t colon = resource.find(':');
    const std::size_t slash = resource.find('/');
    if (colon == std::string::npos || slash == std::string::npos || slash < colon) continue;
    UcxReport::Transport& one = lanes.emplace_back();
    one.name = resource.substr(colon + 1, slash - colon - 1);
    one.device = resource.substr(slash + 1, resource.rfind('.') - slash - 1);
    for (std::string use; words >> use;) one.uses += (one.uses.empty() ? "" : " ") + use;
  }
  return lanes;
}

}  // namespace hawser::transport
