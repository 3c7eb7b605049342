#include <algorithm>
#include <chrono>
#include <utility>

#include "hawser/server_counter_rows.h"
#include "observe/page_state.h"
#include "rpc/server/inspector.h"

namespace hawser::observe {
namespace {

using rpc::Inspector;

constexpr double ns_of_second = 1e9;

PageCell quantile(const HistogramSnapshot& latency, double fraction) {
  return latency.count == 0 ? PageCell("-")
                            : duration_cell(static_cast<double>(latency.quantile(fraction)) / ns_of_second);
}

PageCell errors(std::uint64_t count) {
  PageCell cell = number(count);
  cell.alarm = count != 0;
  return cell;
}

double last_of(const std::vector<double>& values) { return values.empty() ? 0 : values.back(); }

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

PageCell trend_cell(const std::vector<double>& values) {
  if (values.empty()) return PageCell("-");
  PageCell cell = decimal(mean_of(values));
  cell.text = "mean " + cell.text + ", most " + decimal(*std::ranges::max_element(values)).text + " a second";
  cell.trend = values;
  return cell;
}

PageTable server_table(const PageState& state) {
  const ServerCounters counters = state.server.counters();
  const RateTrend trend = state.trends.calls();
  PageTable table{.key = "server", .title = "Server", .columns = {{"name", ""}, {"value", ""}}, .facts = true};
  table.rows = {{"status", Inspector::stopping(state.server) ? "stopping" : "serving"},
                {"calls a second", decimal(last_of(trend.minute))},
                {"calls a second, last minute", trend_cell(trend.minute)},
                {"calls a second, last hour", trend_cell(trend.hour)},
                {"calls a second, last day", trend_cell(trend.day)}};
  for (const auto& row : server_counter_rows<std::uint64_t>) {
    if (row.title.empty()) continue;
    const std::uint64_t value = counters.*row.value;
    table.rows.push_back({row.title, row.problem_if_set ? errors(value) : number(value)});
  }
  return table;
}

using MethodRow = rpc::MethodValueRow<std::uint64_t>;

bool is_bytes(const MethodRow& row) { return row.metric.unit == "bytes"; }

PageCell value_cell(const MethodRow& row, const rpc::MethodReport& report) {
  const std::uint64_t value = report.*row.value;
  return is_bytes(row) ? bytes_cell(static_cast<double>(value)) : number(value);
}

// One method in detail.
Document method_page(const PageState& state, std::size_t index) {
  const std::vector<const rpc::MethodTable*> tables = Inspector::tables(state.server);
  const rpc::MethodReport report = Inspector::method(state.server, tables, index);
  const HistogramSnapshot all = Inspector::latency(tables, index);
  const HistogramSnapshot recent = state.trends.recent(index, all);
  const RateTrend trend = state.trends.calls_of(index);
  Document document{.path = "/status", .title = "Method " + harmless(report.name)};
  PageTable facts{.key = "method", .title = {}, .columns = {{"name", ""}, {"value", ""}}, .facts = true};
  facts.rows = {{"name", report.name}, {"calls", number(report.calls)}, {"errors", errors(report.errors)}};
  for (const MethodRow& row : rpc::method_value_rows<std::uint64_t>) {
    facts.rows.push_back({row.title, value_cell(row, report)});
  }
  facts.rows.push_back({"calls a second, last minute", trend_cell(trend.minute)});
  facts.rows.push_back({"calls a second, last hour", trend_cell(trend.hour)});
  facts.rows.push_back({"calls a second, last day", trend_cell(trend.day)});
  document.tables.push_back(std::move(facts));
  PageTable latency{.key = "latency",
                    .title = "Latency",
                    .columns = {{"calls", "calls"},
                                {"count", "count", true},
                                {"mean", "mean", true},
                                {"p50", "p50", true},
                                {"p90", "p90", true},
                                {"p99", "p99", true},
                                {"p99_9", "p99.9", true},
                                {"p99_99", "p99.99", true}}};
  for (const auto& [name, one] : {std::pair<const char*, const HistogramSnapshot&>{"last one to two minutes", recent},
                                  {"since the start", all}}) {
    const double mean = one.count == 0 ? 0 : static_cast<double>(one.sum) / static_cast<double>(one.count);
    latency.rows.push_back({name, number(one.count), duration_cell(mean / ns_of_second), quantile(one, 0.5),
                            quantile(one, 0.9), quantile(one, 0.99), quantile(one, 0.999), quantile(one, 0.9999)});
  }
  document.tables.push_back(std::move(latency));
  PageTable codes{.key = "outcomes", .title = "Outcomes", .columns = {{"code", "code"}, {"calls", "calls", true}}};
  for (std::size_t code = 0; code < report.by_code.size(); ++code) {
    if (report.by_code[code] == 0) continue;
    codes.rows.push_back({to_string(static_cast<ErrorCode>(code)), number(report.by_code[code])});
  }
  document.tables.push_back(std::move(codes));
  return document;
}

// The values that are numbers stand before the percentiles, and those in bytes behind them.
void add_columns(PageTable& table, bool bytes) {
  for (const MethodRow& row : rpc::method_value_rows<std::uint64_t>) {
    if (is_bytes(row) == bytes) table.columns.push_back({std::string(row.key), std::string(row.column), true});
  }
}

void add_values(std::vector<PageCell>& cells, const rpc::MethodReport& report, bool bytes) {
  for (const MethodRow& row : rpc::method_value_rows<std::uint64_t>) {
    if (is_bytes(row) == bytes) cells.push_back(value_cell(row, report));
  }
}

// The table without rows.
PageTable methods_table() {
  PageTable table{
      .key = "methods",
      .title = "Methods",
      .columns = {
          {"method", "method"}, {"calls_rate", "calls/s", true}, {"calls", "calls", true}, {"errors", "errors", true}}};
  add_columns(table, false);
  for (const auto& [key, title] : {std::pair{"p50", "p50"}, {"p90", "p90"}, {"p99", "p99"}, {"p99_9", "p99.9"}}) {
    table.columns.push_back({key, title, true});
  }
  add_columns(table, true);
  table.columns.push_back({"trend", "last minute"});
  return table;
}

}  // namespace

Task<Document> index_page(PageState& state, HttpRequest&) {
  Document document{.path = "/", .title = "Overview"};
  PageTable facts{.key = "server", .title = {}, .columns = {{"name", ""}, {"value", ""}}, .facts = true};
  const ServerCounters counters = state.server.counters();
  facts.rows = {{"program", state.options.title},
                {"address", state.server.address()},
                {"status", Inspector::stopping(state.server) ? "stopping" : "serving"},
                {"calls a second", trend_cell(state.trends.calls().minute)},
                {"calls in flight", number(counters.calls_in_flight)},
                {"connections", number(counters.connections_open)}};
  document.tables.push_back(std::move(facts));
  PageTable pages{.key = "pages", .title = "Pages", .columns = {{"path", "page"}, {"about", ""}}};
  const auto link = [](std::string_view path) {
    PageCell cell(path);
    cell.link = path;
    return cell;
  };
  for (const PageName& page : page_names()) pages.rows.push_back({link(page.path), page.about});
  for (const ApplicationPage& page : state.options.application) pages.rows.push_back({link(page.path), page.about});
  if (state.options.metrics != PageAccess::off) {
    pages.rows.push_back({link("/metrics"), "Metrics for Prometheus and OpenMetrics."});
  }
  if (state.options.health != PageAccess::off) {
    pages.rows.push_back(
        {link("/health"), "Readiness, with the application's own checks; /health/live, /health/ready."});
  }
  pages.note = "Every page is text for curl, JSON with ?format=json, and HTML for browsers.";
  document.tables.push_back(std::move(pages));
  co_return document;
}

Task<Document> status_page(PageState& state, HttpRequest& request) {
  const std::size_t methods = Inspector::methods(state.server);
  if (!query_of(request.query(), "method").empty()) {
    const std::uint64_t index = number_of(request, "method", methods);
    if (index < methods) co_return method_page(state, index);
  }
  const std::vector<const rpc::MethodTable*> tables = Inspector::tables(state.server);
  struct Row {
    std::uint64_t calls;
    std::size_t index;
  };
  std::vector<Row> called;
  for (std::size_t i = 0; i < methods; ++i) {
    const rpc::MethodReport report = Inspector::method(state.server, tables, i);
    if (report.calls + report.active != 0) called.push_back({report.calls + report.active, i});
    if (i % 512 == 511) {  // The rest of the loop gets its turn.
      co_await request.loop().sleep(Duration::zero());
    }
  }
  std::ranges::sort(
      called, [](const Row& a, const Row& b) { return a.calls != b.calls ? a.calls > b.calls : a.index < b.index; });
  Document document{.path = "/status", .title = "Status"};
  PageTable table = methods_table();
  const std::size_t from = std::min<std::size_t>(number_of(request, "from", 0), called.size());
  const std::size_t to = std::min(called.size(), from + rows_max);
  for (std::size_t i = from; i < to; ++i) {
    const std::size_t index = called[i].index;
    const rpc::MethodReport report = Inspector::method(state.server, tables, index);
    const HistogramSnapshot latency = state.trends.recent(index, Inspector::latency(tables, index));
    const RateTrend trend = state.trends.calls_of(index);
    PageCell name(report.name);
    name.link = "/status?method=" + std::to_string(index);
    std::vector<PageCell> row = {std::move(name), decimal(last_of(trend.minute)), number(report.calls),
                                 errors(report.errors)};
    add_values(row, report, false);
    for (const double fraction : {0.5, 0.9, 0.99, 0.999}) row.push_back(quantile(latency, fraction));
    add_values(row, report, true);
    row.push_back(trend_cell(trend.minute));
    table.rows.push_back(std::move(row));
    if (i % 16 == 15) {
      co_await request.loop().sleep(Duration::zero());
    }
  }
  table.note = "Percentiles are of the last one to two minutes.";
  if (to < called.size()) {
    table.next = "/status?from=" + std::to_string(to);
    table.note += " Further methods that were called: " + number(called.size() - to).text + ".";
  }
  if (called.size() < methods) {
    table.note += " Methods that have not been called: " + number(methods - called.size()).text + ".";
  }
  document.tables.push_back(std::move(table));
  document.tables.push_back(server_table(state));
  co_return document;
}

}  // namespace hawser::observe
