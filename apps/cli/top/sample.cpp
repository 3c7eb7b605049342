#include "cli/top/sample.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace hawser::cli {
namespace {

using nlohmann::json;

double number_at(const json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_number() ? at->get<double>() : 0;
}

std::uint64_t count_at(const json& row, const char* key) {
  // Beyond 2^63, a conversion would be undefined.
  return static_cast<std::uint64_t>(std::clamp(number_at(row, key), 0.0, 9.2e18));
}

std::optional<double> seconds_at(const json& row, const char* key) {
  const auto at = row.find(key);
  if (at == row.end() || !at->is_number()) return std::nullopt;
  return at->get<double>();
}

std::string text_at(const json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// The rows of a table; null if there is no such table.
const json* table_of(const json& page, const char* key) {
  if (!page.is_object()) return nullptr;
  const auto at = page.find(key);
  return at != page.end() && at->is_array() ? &*at : nullptr;
}

double rate(std::uint64_t now, std::uint64_t before, double seconds) {
  return now > before && seconds > 0 ? static_cast<double>(now - before) / seconds : 0;
}

json microseconds(std::optional<double> seconds) { return seconds ? json(*seconds * 1e6) : json(nullptr); }

}  // namespace

bool add_status(TopSample& sample, const json& page) {
  const json* const methods = table_of(page, "methods");
  const auto server = page.is_object() ? page.find("server") : page.end();
  if (methods == nullptr || server == page.end() || !server->is_object()) return false;
  sample.status = text_at(*server, "status");
  sample.calls = count_at(*server, "calls");
  sample.in_flight = count_at(*server, "calls in flight");
  sample.connections_open = count_at(*server, "connections open");
  for (const json& row : *methods) {
    if (sample.methods.size() == top_rows_max) break;
    if (!row.is_object()) continue;
    sample.methods.push_back({.name = text_at(row, "method"),
                              .calls = count_at(row, "calls"),
                              .errors = count_at(row, "errors"),
                              .in_flight = count_at(row, "in_flight"),
                              .p50 = seconds_at(row, "p50"),
                              .p90 = seconds_at(row, "p90"),
                              .p99 = seconds_at(row, "p99")});
  }
  return true;
}

bool add_connections(TopSample& sample, const json& page) {
  const json* const connections = table_of(page, "connections");
  if (connections == nullptr) return false;
  for (const json& row : *connections) {
    if (sample.connections.size() == top_rows_max) break;
    if (!row.is_object()) continue;
    sample.connections.push_back({.id = text_at(row, "id"),
                                  .peer = text_at(row, "peer"),
                                  .protocol = text_at(row, "protocol"),
                                  .transport = text_at(row, "transport"),
                                  .calls = count_at(row, "calls"),
                                  .received = count_at(row, "received"),
                                  .sent = count_at(row, "sent"),
                                  .in_flight = count_at(row, "in_flight"),
                                  .backlog = count_at(row, "backlog")});
  }
  return true;
}

bool add_loops(TopSample& sample, const json& page) {
  const json* const loops = table_of(page, "loops");
  if (loops == nullptr) return false;
  for (const json& row : *loops) {
    if (sample.loops.size() == top_rows_max) break;
    if (!row.is_object()) continue;
    sample.loops.push_back({.number = count_at(row, "loop"),
                            .busy_percent = number_at(row, "utilisation"),
                            .tick_p99 = number_at(row, "p99"),
                            .tick_longest = number_at(row, "longest"),
                            .connections = count_at(row, "connections"),
                            .calls = count_at(row, "calls")});
  }
  return true;
}

void add_rates(TopSample& sample, const TopSample& before, double seconds) {
  sample.calls_rate = rate(sample.calls, before.calls, seconds);
  std::map<std::string_view, const TopSample::Method*> methods;
  for (const TopSample::Method& one : before.methods) methods[one.name] = &one;
  for (TopSample::Method& one : sample.methods) {
    // A method that is new here has made all its calls since.
    const auto found = methods.find(one.name);
    one.calls_rate = rate(one.calls, found == methods.end() ? 0 : found->second->calls, seconds);
    one.errors_rate = rate(one.errors, found == methods.end() ? 0 : found->second->errors, seconds);
  }
  std::map<std::string_view, const TopSample::Connection*> connections;
  for (const TopSample::Connection& one : before.connections) connections[one.id] = &one;
  for (TopSample::Connection& one : sample.connections) {
    const auto found = connections.find(one.id);
    const bool known = found != connections.end();
    one.calls_rate = rate(one.calls, known ? found->second->calls : 0, seconds);
    one.received_rate = rate(one.received, known ? found->second->received : 0, seconds);
    one.sent_rate = rate(one.sent, known ? found->second->sent : 0, seconds);
  }
}

void sort(TopSample& sample, TopOrder order) {
  const auto key = [order](const TopSample::Method& one) {
    switch (order) {
      case TopOrder::rate: return one.calls_rate;
      case TopOrder::calls: return static_cast<double>(one.calls);
      case TopOrder::errors: return static_cast<double>(one.errors);
      case TopOrder::latency: return one.p99.value_or(0);
    }
    return 0.0;
  };
  // Methods of the same rate, such as 0, have an order in which the most called is first.
  std::ranges::sort(sample.methods, std::greater(), [&](const TopSample::Method& one) {
    return std::tuple(key(one), one.calls, std::string_view(one.name));
  });
  std::ranges::sort(sample.connections, std::greater(), [](const TopSample::Connection& one) {
    return std::tuple(one.received_rate + one.sent_rate, one.received + one.sent, std::string_view(one.id));
  });
}

std::string to_json(const TopSample& sample) {
  nlohmann::ordered_json out = {{"status", sample.status},
                                {"calls_per_second", sample.calls_rate},
                                {"calls", sample.calls},
                                {"calls_in_flight", sample.in_flight},
                                {"connections_open", sample.connections_open}};
  auto methods = nlohmann::ordered_json::array();
  for (const TopSample::Method& one : sample.methods) {
    methods.push_back({{"method", one.name},
                       {"calls_per_second", one.calls_rate},
                       {"errors_per_second", one.errors_rate},
                       {"calls", one.calls},
                       {"errors", one.errors},
                       {"calls_in_flight", one.in_flight},
                       {"p50_us", microseconds(one.p50)},
                       {"p90_us", microseconds(one.p90)},
                       {"p99_us", microseconds(one.p99)}});
  }
  auto connections = nlohmann::ordered_json::array();
  for (const TopSample::Connection& one : sample.connections) {
    connections.push_back({{"id", one.id},
                           {"peer", one.peer},
                           {"protocol", one.protocol},
                           {"transport", one.transport},
                           {"calls_per_second", one.calls_rate},
                           {"received_bytes_per_second", one.received_rate},
                           {"sent_bytes_per_second", one.sent_rate},
                           {"calls_in_flight", one.in_flight},
                           {"backlog_bytes", one.backlog}});
  }
  auto loops = nlohmann::ordered_json::array();
  for (const TopSample::Loop& one : sample.loops) {
    loops.push_back({{"loop", one.number},
                     {"busy_percent", one.busy_percent},
                     {"tick_p99_us", one.tick_p99 * 1e6},
                     {"tick_longest_us", one.tick_longest * 1e6},
                     {"connections", one.connections},
                     {"calls", one.calls}});
  }
  out["methods"] = std::move(methods);
  out["connections"] = std::move(connections);
  out["loops"] = std::move(loops);
  return out.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace hawser::cli
