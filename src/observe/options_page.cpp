#include <utility>

#include "observe/page_state.h"
#include "rpc/server/inspector.h"

namespace hawser::observe {
namespace {

Cell shown(const std::string& value) { return Cell(value.empty() ? std::string("(none)") : value); }
Cell shown(bool value) { return boolean(value); }
Cell shown(Duration value) {
  return value == forever ? Cell("forever") : duration_cell(std::chrono::duration<double>(value).count());
}
Cell shown(unsigned value) { return number(value); }
Cell shown(unsigned long value) { return number(value); }
Cell shown(const std::optional<Duration>& value) { return value ? shown(*value) : Cell("(by measurement)"); }
Cell shown(const std::optional<std::chrono::microseconds>& value) {
  return value ? shown(Duration(*value)) : Cell("(not restricted)");
}
Cell shown(Wait value) {
  return value == Wait::spin ? Cell("spin") : value == Wait::event ? Cell("event") : Cell("busy_poll");
}
Cell shown(PollerKind value) {
  return value == PollerKind::epoll      ? Cell("epoll")
         : value == PollerKind::io_uring ? Cell("io_uring")
                                         : Cell("automatic");
}
Cell shown(const std::vector<int>& values) {
  std::string all;
  for (const int value : values) all += (all.empty() ? "" : ", ") + std::to_string(value);
  return shown(all);
}
Cell shown(const std::vector<TransportSpec>& values) {
  std::string all;
  for (const TransportSpec& value : values) all += (all.empty() ? "" : ", ") + std::string(value.name());
  return shown(all);
}
Cell shown(const std::vector<std::string>& values) {
  std::string all;
  for (const std::string& value : values) all += (all.empty() ? "" : ", ") + value;
  return shown(all);
}

template <class T>
void add(Table& table, const char* name, const T& value, const T& standard) {
  Cell now = shown(value);
  Cell before = shown(standard);
  const bool same = now.text == before.text;
  table.rows.push_back({name, std::move(now), std::move(before), same ? "default" : "the program"});
}

}  // namespace

Task<Document> options_page(PageState& state, HttpRequest&) {
  const ServerOptions& now = rpc::Inspector::options(state.server);
  const ServerOptions before;
  Document document{.path = "/options", .title = "Options"};
  document.updates = false;
  Table table{
      .key = "options",
      .title = "ServerOptions",
      .columns = {{"name", "name"}, {"value", "value", true}, {"default", "default", true}, {"origin", "set by"}}};
#define HAWSER_OPTION(name) add(table, #name, now.name, before.name)
  HAWSER_OPTION(listen);
  HAWSER_OPTION(threads);
  HAWSER_OPTION(cpus);
  HAWSER_OPTION(cpu_latency_max);
  HAWSER_OPTION(connections_max);
  HAWSER_OPTION(calls_per_connection_max);
  HAWSER_OPTION(calls_max);
  HAWSER_OPTION(message_bytes_max);
  HAWSER_OPTION(send_backlog_bytes_max);
  HAWSER_OPTION(receive_bytes_max);
  HAWSER_OPTION(receive_share_bytes_max);
  HAWSER_OPTION(receive_peer_bytes_max);
  HAWSER_OPTION(receive_rate_min);
  HAWSER_OPTION(receive_window);
  HAWSER_OPTION(handshakes_max);
  HAWSER_OPTION(stream_window_bytes);
  HAWSER_OPTION(handshake_timeout);
  HAWSER_OPTION(ping_interval);
  HAWSER_OPTION(checksum);
  HAWSER_OPTION(exception_texts);
  HAWSER_OPTION(loop.wait);
  HAWSER_OPTION(loop.poller);
  HAWSER_OPTION(loop.spin_max);
  HAWSER_OPTION(loop.offload_threads_max);
  HAWSER_OPTION(loop.offload_queue_max);
  HAWSER_OPTION(loop.blocked_max);
  HAWSER_OPTION(transports.enabled);
  HAWSER_OPTION(transports.order);
  HAWSER_OPTION(transports.required);
  HAWSER_OPTION(transports.retry_min);
  HAWSER_OPTION(transports.retry_max);
#undef HAWSER_OPTION
  table.note = "include/hawser/server.h describes each. They cannot be changed while the server runs.";
  document.tables.push_back(std::move(table));
  co_return document;
}

}  // namespace hawser::observe
