#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "transport/ucx/ucx_end.h"
#include "transport/ucx/ucx_path.h"

namespace hawser::transport {
namespace {

// What `print` writes into a file.
template <class F>
std::string printed(F print) {
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

// The lines "#  rsc 2 : md 1 dev 1 flags -- tcp/lo" and their like, as UCX prints its context.
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

}  // namespace

Result<UcxReport> ucx_report(const UcxOptions& options) {
  Result<std::shared_ptr<UcxContext>> context = UcxContext::make(options, true);
  if (!context) return std::unexpected(context.error());
  const UcpLibrary& ucp = (*context)->ucp();
  UcxReport report{.library = "UCX " + ucp.version + ", " + ucp.path};
  report.transports = transports_in(printed([&](std::FILE* file) { ucp.context_print_info((*context)->get(), file); }));
  for (const auto& [name, value] : ucx_settings(options)) report.settings.push_back(name + "=" + value);
  Loop loop({.log = no_log()});
  Result<std::shared_ptr<UcxWorker>> worker = UcxWorker::make(*context, loop);
  if (!worker) return std::unexpected(worker.error());
  report.address_bytes = (*worker)->address().size();
  report.worker = printed([&](std::FILE* file) { ucp.worker_print_info((*worker)->core().get(), file); });
  return report;
}

}  // namespace hawser::transport
