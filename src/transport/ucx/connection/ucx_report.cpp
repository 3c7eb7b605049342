#include <sstream>

#include "base/try.h"
#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/core/ucx_lanes.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::transport {
namespace {

// Reads lines such as "#  rsc 2 : md 1 dev 1 flags -- tcp/lo" from UCX's description of a context.
std::vector<UcxReport::Transport> transports_in(const std::string& text) {
  std::vector<UcxReport::Transport> transports;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("resource ") == std::string::npos) continue;
    const std::size_t name = line.rfind(' ');
    const std::size_t slash = line.find('/', name == std::string::npos ? 0 : name);
    if (name == std::string::npos || slash == std::string::npos) continue;
    transports.push_back({.name = line.substr(name + 1, slash - name - 1), .device = line.substr(slash + 1)});
  }
  return transports;
}

// Returns the transports that an endpoint from `from` to `to` uses.
Result<std::vector<UcxReport::Transport>> lanes_between(UcxWorker& from, UcxWorker& to) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = reinterpret_cast<const ucp_address_t*>(to.address().data());
  TRY(std::unique_ptr<UcxEndpoint> endpoint, from.core().connect(params, 0));
  std::vector<UcxReport::Transport> lanes = ucx_lanes(from.core().ucp(), endpoint->ep);
  from.close(std::move(endpoint), UcxClose::cut);
  return lanes;
}

// Options for an endpoint that is closed while its wire-up is not complete. Over datagrams of InfiniBand an assertion
// of UCX 1.13 ends the process if such an endpoint is closed by force, as UcxErrorMode::peer does it. The other mode
// with the same transports makes the same choice, except for copies between processes, whose errors UCX cannot report.
UcxOptions options_of_probe(const UcxOptions& options) {
  UcxOptions probe = options;
  if (options.error_mode != UcxErrorMode::peer) return probe;
  probe.error_mode = UcxErrorMode::none;
  for (const auto& [name, value] : ucx_settings(options)) {
    if (name == "TLS") probe.tls = value.starts_with('^') ? value + ",cma,knem" : value;
  }
  return probe;
}

}  // namespace

Result<UcxReport> ucx_report(const UcxOptions& options) {
  TRY(check(options));
  TRY(std::shared_ptr<UcxContext> context, UcxContext::make(options_of_probe(options), true));
  const UcpLibrary& ucp = context->ucp();
  UcxReport report{.library = "UCX " + ucp.version + ", " + ucp.path};
  report.transports =
      transports_in(ucx_printed([&](std::FILE* file) { ucp.context_print_info(context->get(), file); }));
  for (const auto& [name, value] : ucx_settings(options, ucp.version)) report.settings.push_back(name + "=" + value);
  Loop loop({.log = no_log()});
  TRY(std::shared_ptr<UcxWorker> worker, UcxWorker::make(context, loop));
  report.address_bytes = worker->address().size();
  TRY(std::shared_ptr<UcxWorker> other, UcxWorker::make(context, loop));
  TRY(std::vector<UcxReport::Transport>&& chosen, lanes_between(*worker, *other));
  report.chosen = std::move(chosen);
  return report;
}

}  // namespace hawser::transport
