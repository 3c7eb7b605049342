#include <utility>

#include "observe/page_state.h"
#include "rpc/client/cluster_monitor_state.h"

namespace hawser::observe {
namespace {

using rpc::ClusterReport;

constexpr std::size_t title_bytes_max = 80;

PageCell problem(std::string text) {
  PageCell cell(std::move(text));
  cell.alarm = !cell.text.empty();
  return cell;
}

PageCell failing(std::size_t count) {
  PageCell cell = number(count);
  cell.alarm = count != 0;
  return cell;
}

std::string error_text(const std::optional<Error>& error) { return error ? error->text : std::string(); }

PageCell age_cell(const ClusterReport& report) {
  if (report.naming.version == 0) return PageCell("no list yet");
  return report.naming.constant ? PageCell("constant") : duration_cell(report.list_age);
}

// No endpoint can serve.
PageCell ready_cell(const ClusterReport& report) {
  PageCell cell = number(report.ready);
  cell.alarm = report.ready + report.connecting + report.idle == 0;
  return cell;
}

PageCell tokens_cell(const ClusterReport& report) {
  PageCell cell = decimal(report.retry_tokens);
  cell.alarm = !report.may_retry;
  return cell;
}

std::string address_of_client(std::uint64_t number) { return "/channels?client=" + std::to_string(number); }

PageTable clients_table(const rpc::ClusterReports& reports) {
  PageTable table{.key = "clients",
                  .title = number(reports.all).text + " clients",
                  .columns = {{"client", "client", true},
                              {"name", "name"},
                              {"balancing", "balancing"},
                              {"endpoints", "endpoints", true},
                              {"ready", "ready", true},
                              {"failed", "failed", true},
                              {"excluded", "excluded", true},
                              {"list_error", "why the list may be old"},
                              {"connecting", "connecting", true},
                              {"idle", "idle", true},
                              {"calls_in_flight", "in flight", true},
                              {"retry_tokens", "retry tokens", true},
                              {"list_age", "age of the list", true}}};
  for (const ClusterReport& one : reports.found) {
    PageCell client = number(one.number);
    client.link = address_of_client(one.number);
    table.rows.push_back({std::move(client), one.name, one.balancing, number(one.endpoints), ready_cell(one),
                          failing(one.failed), failing(one.excluded), problem(error_text(one.naming.error)),
                          number(one.connecting), number(one.idle), number(one.calls_in_flight), tokens_cell(one),
                          age_cell(one)});
  }
  table.note = "Each loop has a client of its own.";
  if (reports.silent != 0) {
    table.note += " The loops of " + number(reports.silent).text + " clients did not answer: something blocks them.";
  }
  return table;
}

PageTable client_table(const ClusterReport& report) {
  PageTable facts{.key = "client", .title = {}, .columns = {{"name", ""}, {"value", ""}}, .facts = true};
  PageCell budget = tokens_cell(report);
  budget.text += report.may_retry ? ": calls may be made again" : ": no call is made again until more calls succeed";
  facts.rows = {{"name", report.name},
                {"balancing", report.balancing},
                {"routes", report.routes.empty() ? "all calls are served alike" : report.routes},
                {"calls in flight", number(report.calls_in_flight)},
                {"retry tokens", std::move(budget)},
                {"version of the list", number(report.naming.version)},
                {"age of the list", age_cell(report)},
                {"why the list may be old", problem(error_text(report.naming.error))},
                {"lists refused", failing(report.naming.lists_refused)},
                {"endpoints dropped", failing(report.naming.endpoints_dropped)},
                {"why the last one was dropped", report.naming.drop_reason},
                {"why the name's service config is not used", problem(report.naming.service_config_error)},
                {"ready", ready_cell(report)},
                {"connecting", number(report.connecting)},
                {"idle", number(report.idle)},
                {"failed", failing(report.failed)},
                {"excluded", failing(report.excluded)}};
  return facts;
}

std::string tags_of(const Endpoint& endpoint) {
  std::string text;
  for (const auto& [key, value] : endpoint.tags) text += (text.empty() ? "" : " ") + key + "=" + value;
  return text;
}

PageTable endpoints_table(const ClusterReport& report, std::size_t from) {
  PageTable table{.key = "endpoints",
                  .title = "Endpoints: " + number(report.endpoints).text,
                  .columns = {{"address", "address"},
                              {"standing", "gets"},
                              {"reach", "state"},
                              {"calls_in_flight", "in flight", true},
                              {"limit", "limit", true},
                              {"latency", "latency", true},
                              {"connections", "connections", true},
                              {"excluded_for", "excluded for", true},
                              {"breaker_open_for", "breaker open for", true},
                              {"weight", "weight", true},
                              {"weight_by_load", "weight by load", true},
                              {"priority", "priority", true},
                              {"zone", "zone"},
                              {"error", "why it cannot be reached"},
                              {"tags", "tags"}}};
  const auto time = [](Duration left) { return left == Duration::zero() ? PageCell("-") : duration_cell(left); };
  for (const EndpointState& one : report.rows) {
    PageCell standing(one.standing);
    const bool full = one.calls_in_flight_max && one.calls_in_flight >= *one.calls_in_flight_max;
    const bool excluded = one.excluded_for > Duration::zero() || one.breaker_open_for > Duration::zero();
    standing.alarm =
        one.reach == "failed" || (one.reach == "ready" && !one.standing.starts_with("calls") && (full || excluded));
    table.rows.push_back({one.endpoint.address, std::move(standing), one.reach, number(one.calls_in_flight),
                          one.calls_in_flight_max ? number(*one.calls_in_flight_max) : PageCell("-"),
                          one.latency ? duration_cell(*one.latency) : PageCell("-"), number(one.connections),
                          time(one.excluded_for), time(one.breaker_open_for), number(one.endpoint.weight),
                          one.weight_by_load ? decimal(*one.weight_by_load) : PageCell("-"),
                          number(one.endpoint.priority), one.endpoint.zone, problem(one.error), tags_of(one.endpoint)});
  }
  table.note = "The latency is the one by which p2c chooses; failures count in it.";
  if (from + report.rows.size() < report.endpoints) {
    table.next = address_of_client(report.number) + "&from=" + std::to_string(from + report.rows.size());
  }
  return table;
}

}  // namespace

Task<Document> channels_page(PageState& state, HttpRequest& request) {
  Document document{.path = "/channels", .title = "Channels"};
  if (!state.options.clusters) {
    PageTable none{.key = "clients", .title = "0 clients", .columns = {{"name", "name"}}};
    none.note = "Set PagesOptions::clusters, and ClusterOptions::monitor of the clients, to the same ClusterMonitor.";
    document.tables.push_back(std::move(none));
    co_return document;
  }
  ClusterMonitorAccess::State& monitor = *ClusterMonitorAccess::state(*state.options.clusters);
  const std::uint64_t client = number_of(request, "client", 0);
  const auto from = static_cast<std::size_t>(number_of(request, "from", 0));
  if (client != 0) {
    const auto reports = co_await monitor.reports(request.loop(), client, 1, from, rows_max);
    if (!reports.found.empty() && reports.found.front().number == client) {
      document.title = "Channel " + harmless(reports.found.front().name, title_bytes_max);
      document.tables.push_back(client_table(reports.found.front()));
      document.tables.push_back(endpoints_table(reports.found.front(), from));
      co_return document;
    }
  }
  const auto reports = co_await monitor.reports(request.loop(), from, rows_max, 0, 0);
  PageTable table = clients_table(reports);
  if (reports.next != 0) table.next = "/channels?from=" + std::to_string(reports.next);
  document.tables.push_back(std::move(table));
  co_return document;
}

}  // namespace hawser::observe
