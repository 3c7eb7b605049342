#include "bench/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "bench/load/size.h"
#include "bench/page/page_data.h"
#include "bench/page/page_plots.h"
#include "bench/results/medians.h"
#include "bench/results/table.h"
#include "bench/run/run.h"
#include "report/line_chart.h"
#include "report/page_style.h"

namespace hawser::bench {

using report::escaped;
using report::page_style;
using report::Quantity;
using report::quantity_text;

namespace {

std::string cell_text(const Cell& cell) {
  return fmt::format("{} \u00d7 {}, {}", format_size(cell.size_bytes), cell.concurrency, to_string(cell.wait));
}

std::string tile(const std::string& figure, const std::string& unit, const std::string& text) {
  return fmt::format("<div class=\"panel tile\"><b>{} <small>{}</small></b><span>{}</span></div>\n", figure,
                     escaped(unit), escaped(text));
}

// Tiles with the best results of Hawser and its average ratio to each peer.
std::string tiles_of(std::span<const PageGroup> groups) {
  const CellResult* most_calls = nullptr;
  const CellResult* most_bits = nullptr;
  const CellResult* fastest = nullptr;
  struct Mean {
    double logarithms = 0;
    int count = 0;
  };
  std::map<std::string, Mean> means;
  for (const PageGroup& group : groups) {
    for (const PageSeries& series : group.series) {
      const PageSeries* ours = group.ours_for(series);
      for (const CellResult& one : series.results) {
        if (one.calls == 0) continue;
        if (series.system == "hawser") {
          if (!most_calls || one.calls_per_s() > most_calls->calls_per_s()) most_calls = &one;
          if (!most_bits || one.gbit_per_s() > most_bits->gbit_per_s()) most_bits = &one;
          if (!fastest || one.p50_us < fastest->p50_us) fastest = &one;
        } else if (const CellResult* own = ours ? ours->find(one.cell.size_bytes, one.cell.concurrency) : nullptr) {
          if (own->calls == 0) continue;
          Mean& mean = means[series.system];
          mean.logarithms += std::log(ratio_of(*own, one));
          ++mean.count;
        }
      }
    }
  }
  std::string text;
  if (most_calls != nullptr) {
    text += tile(quantity_text(Quantity::per_second, most_calls->calls_per_s()), "calls/s",
                 "most calls: " + cell_text(most_calls->cell));
    text += tile(quantity_text(Quantity::gbit_per_s, most_bits->gbit_per_s()), "Gb/s",
                 "most payload one way: " + cell_text(most_bits->cell));
    text += tile(quantity_text(Quantity::microseconds, fastest->p50_us), "",
                 "shortest median latency: " + cell_text(fastest->cell));
  }
  for (const auto& [peer, mean] : means) {
    text += tile(fmt::format("{:.2f}\u00d7", std::exp(mean.logarithms / mean.count)), peer,
                 fmt::format("hawser's calls/s, geometric mean of {} cell{}", mean.count, mean.count == 1 ? "" : "s"));
  }
  return text.empty() ? text : "<div class=\"tiles\">\n" + text + "</div>\n";
}

std::string seconds_per_million(double seconds, std::uint64_t calls) {
  return calls == 0 ? "-" : fmt::format("{:.2f}", seconds * 1e6 / static_cast<double>(calls));
}

std::string row_of(const PageGroup& group, const PageSeries& series, const CellResult& one, bool first, double best) {
  std::string text = first ? "<tr class=\"first\">" : "<tr>";
  text += fmt::format("<td>{}</td><td>{}{}</td>", first ? format_size(one.cell.size_bytes) : "",
                      first ? fmt::format("{}", one.cell.concurrency) : "",
                      one.calls_at_once < one.cell.concurrency ? fmt::format(" ({})", one.calls_at_once) : "");
  if (group.series.size() > 1) {
    text += fmt::format("<td class=\"name series-{}\"><i></i>{}</td>", colour_of(group, series), escaped(series.label));
    text += fmt::format("<td class=\"bar series-{}\"><i style=\"width: {:.1f}%\"></i></td>", colour_of(group, series),
                        best > 0 ? 100 * one.calls_per_s() / best : 0);
  }
  text += fmt::format("<td>{}</td><td>{:.2f}</td>", with_thousands(one.calls_per_s()), one.gbit_per_s());
  for (const double time : {one.p50_us, one.p90_us, one.p99_us, one.p999_us}) {
    text += fmt::format("<td>{}</td>", time > 0 ? microseconds_text(time) : "-");
  }
  text += fmt::format("<td>{}</td><td>{}</td>", seconds_per_million(one.server_cpu_s, one.calls),
                      seconds_per_million(one.client_cpu_s, one.calls));
  const std::string why = one.first_error.empty() ? "" : fmt::format(" title=\"{}\"", escaped(one.first_error));
  text += fmt::format("<td{}{}>{}</td></tr>\n", one.errors > 0 ? " class=\"error\"" : "", why, one.errors);
  return text;
}

std::string table_of(const PageGroup& group) {
  const bool several = group.series.size() > 1;
  std::string text =
      "<h3>All figures</h3>\n<div class=\"panel scroll\"><table>\n<thead><tr><th>Size</th><th>In flight</th>";
  if (several) text += "<th class=\"name\">System</th><th class=\"name\">Calls/s to the cell's best</th>";
  text +=
      "<th>Calls/s</th><th>Gb/s</th><th>P50 \u00b5s</th><th>P90 \u00b5s</th><th>P99 \u00b5s</th><th>P99.9 \u00b5s</th>"
      "<th>Server s/M</th><th>Client s/M</th><th>Errors</th></tr></thead>\n<tbody>\n";
  for (const std::size_t size : group.sizes_bytes) {
    for (const unsigned concurrency : group.concurrencies) {
      double best = 0;
      for (const PageSeries& series : group.series) {
        const CellResult* one = series.find(size, concurrency);
        if (one != nullptr) best = std::max(best, one->calls_per_s());
      }
      bool first = true;
      for (const PageSeries& series : group.series) {
        const CellResult* one = series.find(size, concurrency);
        if (one == nullptr) continue;
        text += row_of(group, series, *one, first, best);
        first = false;
      }
    }
  }
  return text + "</tbody></table></div>\n";
}

std::string_view connections_of(Mode mode) {
  switch (mode) {
    case Mode::pipeline: return "All calls in flight share one connection.";
    case Mode::connections: return "Each call in flight has a connection of its own.";
    case Mode::threads: return "Each call in flight has a thread that blocks. The threads share one connection.";
  }
  return {};
}

std::string section_of(const PageGroup& group) {
  std::string text = fmt::format("<section>\n<h2>{}, {}, wait {}</h2>\n<p>{} {}</p>\n", escaped(group.transport),
                                 to_string(group.mode), to_string(group.wait), connections_of(group.mode),
                                 group.reply == "ack" ? "Replies are 16 bytes." : "The reply is the payload.");
  return text + heat_maps_of(group) + plots_of(group) + table_of(group) + "</section>\n";
}

// The rate of the fastest system with the same transfers in this file.
double best_rate(const RunFile& run, const MemoryResult& like) {
  double best = 0;
  for (const MemoryResult& one : run.memory) {
    if (one.op == like.op && one.transport == like.transport) best = std::max(best, one.gbit_per_s);
  }
  return best;
}

std::string memory_row_of(const RunFile& run, const MemoryResult& one) {
  const bool ours = one.system == "hawser";
  std::string text = fmt::format(
      "<tr><td class=\"name\">{}{}</td><td class=\"name\">{}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td>"
      "<td class=\"name\">{}</td><td class=\"bar series-{}\"><i style=\"width: {:.1f}%\"></i></td><td>{:.2f}</td>",
      escaped(one.op), one.priority == "bulk" ? ", bulk" : "", escaped(one.transport), format_size(one.block_bytes),
      one.batch, one.scattered ? ", scattered" : "", one.depth, fmt::format("{} to {}", one.clients, one.owners),
      escaped(one.system), ours ? 0 : 1, best_rate(run, one) > 0 ? 100 * one.gbit_per_s / best_rate(run, one) : 0,
      one.gbit_per_s);
  text += fmt::format("<td>{}</td>", one.alone_gbit_per_s > 0 ? fmt::format("{:.2f}", one.alone_gbit_per_s) : "-");
  for (const double time : {one.post_us, one.p50_us, one.p99_us, one.call_alone_p99_us, one.call_beside_p99_us}) {
    text += fmt::format("<td>{}</td>", time > 0 ? microseconds_text(time) : "-");
  }
  return text + "</tr>\n";
}

// Reads and writes of a peer's memory, a row for each system of each file.
std::string memory_section_of(std::span<const RunFile> runs) {
  std::string rows;
  for (const RunFile& run : runs) {
    for (const MemoryResult& one : run.memory) rows += memory_row_of(run, one);
  }
  if (rows.empty()) return rows;
  return "<section>\n<h2>Access to a peer's memory</h2>\n<p>The bars compare the systems of one file. Calls have 128 "
         "bytes, and share the connection with the transfers.</p>\n<div class=\"panel scroll\"><table>\n<thead><tr>"
         "<th class=\"name\">Operation</th><th class=\"name\">Transport</th><th>Block</th><th>Blocks of a batch</th>"
         "<th>Batches in flight</th><th>Clients to owners</th><th class=\"name\">System</th>"
         "<th class=\"name\">Gb/s to the best</th><th>Gb/s</th><th>Without calls</th><th>Post \u00b5s</th>"
         "<th>P50 \u00b5s</th><th>P99 \u00b5s</th><th>Calls alone, P99 \u00b5s</th><th>Calls beside, P99 \u00b5s</th>"
         "</tr></thead>\n<tbody>\n" +
         rows + "</tbody></table></div>\n</section>\n";
}

std::string meta_of(std::span<const RunFile> runs) {
  std::string text = "<section>\n<h2>Where the figures come from</h2>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("<h3>Run {}: {}</h3>\n<div class=\"panel\"><dl>\n", i + 1, escaped(runs[i].name));
    for (const auto& [key, value] : runs[i].meta) {
      text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(key), escaped(value));
    }
    text += "</dl></div>\n";
  }
  return text + "</section>\n";
}

std::string introduction_of(std::span<const RunFile> runs) {
  const auto fact = [&](const std::string& key) {
    for (const auto& [name, value] : runs.empty() ? decltype(RunFile::meta)() : runs.front().meta) {
      if (name == key) return escaped(value);
    }
    return std::string("unknown");
  };
  return fmt::format("<h1>Hawser benchmark</h1>\n<p>{}, Linux {}, {}, hawser {}, measured {}.</p>\n", fact("cpu"),
                     fact("kernel"), fact("compiler"), fact("version"), fact("date"));
}

}  // namespace

std::string page_of(std::span<const RunFile> runs) {
  const std::vector<PageGroup> groups = group_runs(runs);
  std::string text =
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>Hawser "
      "benchmark</title>\n<style>";
  text += page_style();
  text += "</style>\n</head>\n<body>\n<main>\n<header>\n" + introduction_of(runs) + tiles_of(groups) + "</header>\n";
  for (const PageGroup& group : groups) text += section_of(group);
  return text + memory_section_of(runs) + meta_of(runs) + "</main>\n</body>\n</html>\n";
}

int run_report(RunOptions options) {
  std::vector<RunFile> runs;
  for (const std::string& path : options.report_inputs) {
    std::expected<RunFile, std::string> run = read_run_file(path);
    if (!run) {
      fmt::print(stderr, "hawser-bench: {}\n", run.error());
      return failed_status;
    }
    runs.push_back(std::move(*run));
  }
  std::ofstream file(options.report_path, std::ios::trunc);
  file << page_of(runs);
  file.close();
  if (!file) {
    fmt::print(stderr, "hawser-bench: cannot write {}\n", options.report_path);
    return failed_status;
  }
  fmt::print("{}\n", options.report_path);
  return 0;
}

}  // namespace hawser::bench
