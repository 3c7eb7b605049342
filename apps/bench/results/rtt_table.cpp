#include "bench/results/rtt_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace hawser::bench {

std::string rtt_table(const std::vector<CellResult>& results) {
  std::vector<std::string> transports;
  for (const CellResult& one : results) {
    if (std::ranges::find(transports, one.cell.transport) == transports.end()) transports.push_back(one.cell.transport);
  }
  std::string head = "| Depth |";
  std::string rule = "| ---: |";
  for (const std::string& name : transports) {
    head += fmt::format(" {} (us) |", name);
    rule += " ---: |";
  }
  std::string text = fmt::format("{} Ratio |\n{} ---: |\n", head, rule);
  for (const unsigned depth : rtt_depths) {
    std::string line = fmt::format("| {} |", depth);
    double first = 0;
    double last = 0;
    for (const std::string& name : transports) {
      const auto found = std::ranges::find_if(
          results, [&](const CellResult& one) { return one.cell.transport == name && one.cell.concurrency == depth; });
      last = found == results.end() ? 0 : found->p50_us;
      if (name == transports.front()) first = last;
      line += fmt::format(" {:.1f} |", last);
    }
    text += fmt::format("{} {:.1f} |\n", line, first > 0 ? last / first : 0);
  }
  return text;
}

}  // namespace hawser::bench
