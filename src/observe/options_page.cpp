#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/parse_double.h"
#include "hawser/change_option.h"
#include "observe/page_state.h"
#include "rpc/server/inspector.h"
#include "rpc/server/live_options.h"

namespace hawser::observe {
namespace {

PageCell shown(const std::string& value) { return PageCell(value.empty() ? std::string("(none)") : value); }
PageCell shown(bool value) { return boolean(value); }
PageCell shown(Duration value) {
  return value == forever ? PageCell("forever") : duration_cell(std::chrono::duration<double>(value).count());
}
PageCell shown(unsigned value) { return number(value); }
PageCell shown(unsigned long value) { return number(value); }
PageCell shown(const std::optional<Duration>& value) { return value ? shown(*value) : PageCell("(by measurement)"); }
PageCell shown(const std::optional<std::chrono::microseconds>& value) {
  return value ? shown(Duration(*value)) : PageCell("(not restricted)");
}
PageCell shown(Wait value) {
  return value == Wait::spin ? PageCell("spin") : value == Wait::event ? PageCell("event") : PageCell("busy_poll");
}
PageCell shown(PollerKind value) {
  return value == PollerKind::epoll      ? PageCell("epoll")
         : value == PollerKind::io_uring ? PageCell("io_uring")
                                         : PageCell("automatic");
}
PageCell shown(const std::vector<int>& values) {
  std::string all;
  for (const int value : values) all += (all.empty() ? "" : ", ") + std::to_string(value);
  return shown(all);
}
PageCell shown(const std::vector<TransportSpec>& values) {
  std::string all;
  for (const TransportSpec& value : values) all += (all.empty() ? "" : ", ") + std::string(value.name());
  return shown(all);
}
PageCell shown(const std::vector<std::string>& values) {
  std::string all;
  for (const std::string& value : values) all += (all.empty() ? "" : ", ") + value;
  return shown(all);
}

PageCell change_cell(const OptionState& option, bool changes) {
  PageCell cell("yes");
  cell.json = "true";
  if (!changes) return cell;
  cell.label = "Change";
  cell.link = "/options/change?name=" + query_value(option.name);
  cell.button = true;
  cell.field = option.value;
  return cell;
}

class Rows {
 public:
  Rows(PageTable& table, const std::vector<OptionState>& changeable, bool changes)
      : table_(table), changeable_(changeable), changes_(changes) {}

  template <class T>
  void add(std::string_view name, const T& value, const T& standard) {
    PageCell now = shown(value);
    PageCell before = shown(standard);
    const auto live = std::ranges::find(changeable_, name, &OptionState::name);
    std::string origin = now.text == before.text ? "default" : "the program";
    PageCell change = boolean(false);
    if (live != changeable_.end()) {
      origin = live->origin;
      change = change_cell(*live, changes_);
    }
    table_.rows.push_back({name, std::move(now), std::move(before), std::move(origin), std::move(change)});
  }

 private:
  PageTable& table_;
  const std::vector<OptionState>& changeable_;
  const bool changes_;
};

std::vector<Column> option_columns() {
  return {{"name", "name"},
          {"value", "value", true},
          {"default", "default", true},
          {"origin", "set by"},
          {"changeable", "can be changed"}};
}

// The options of the application and of components.
PageTable own_options(const std::vector<OptionState>& changeable, bool changes) {
  PageTable table{.key = "own_options", .title = "Options of the program", .columns = option_columns()};
  for (const OptionState& one : changeable) {
    if (rpc::LiveOptions::is_of_server(one.name)) continue;
    table.rows.push_back({one.name, shown(one.value), shown(one.standard), one.origin, change_cell(one, changes)});
  }
  return table;
}

// Why the server has no such option although the pages know it; empty if that is not the reason.
std::string absence_of(const PageState& state, std::string_view name) {
  const bool of_tracer = name == "tracer.ratio" || name == "tracer.failed_calls" || name == "tracer.slow_calls";
  const bool of_log = name == "log.level";
  if ((of_tracer && state.options.tracer) || (of_log && state.options.log) || (!of_tracer && !of_log)) return {};
  // The application may have an option of that name.
  const std::vector<OptionState> changeable = changeable_options(state.server);
  if (std::ranges::find(changeable, name, &OptionState::name) != changeable.end()) return {};
  return "option " + std::string(name) +
         (of_tracer ? " is not there, because the pages of this server have no tracer: the program must pass one in "
                      "PagesOptions::tracer (hawser/tracing.h)"
                    : " is not there, because the pages of this server have no log: the program must pass a RecentLog "
                      "in PagesOptions::log (hawser/recent_log.h)");
}

bool has_value(std::string_view query) {
  return query.starts_with("value=") || query.find("&value=") != std::string_view::npos;
}

Result<void> set_level(RecentLog log, std::string_view value) {
  for (const LogLevel one : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    if (to_string(one) != value) continue;
    log.set_level(one);
    return {};
  }
  return fail(ErrorCode::invalid_argument, "it is none of debug, info, warning and error");
}

std::string ratio_text(double ratio) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), ratio).ptr};
}

Result<void> set_ratio(const Tracer& tracer, std::string_view value) {
  const std::optional<double> ratio = parse_double(value);
  if (!ratio || !tracer.set_ratio(*ratio)) return fail(ErrorCode::invalid_argument, "it is not a number from 0 to 1");
  return {};
}

Result<void> set_failed_calls(const Tracer& tracer, std::string_view value) {
  if (value != "true" && value != "false") return fail(ErrorCode::invalid_argument, "it is neither true nor false");
  tracer.set_failed_calls(value == "true");
  return {};
}

Result<void> set_slow_calls(const Tracer& tracer, std::string_view value) {
  const std::optional<Duration> given = rpc::duration_of(value);
  if (!given)
    return fail(ErrorCode::invalid_argument, "it is not a duration with its unit, such as 200ms, nor forever");
  tracer.set_slow_calls(*given);
  return {};
}

}  // namespace

void add_page_options(Server& server, const PagesOptions& options) {
  if (options.log) {
    add_option(server, {.name = "log.level",
                        .value = std::string(to_string(options.log->level())),
                        .change = [log = *options.log](std::string_view value) { return set_level(log, value); },
                        .read = [log = *options.log] { return std::string(to_string(log.level())); }});
  }
  if (!options.tracer) return;
  const Tracer& tracer = *options.tracer;
  const TracerOptions now = tracer.options();
  add_option(server, {.name = "tracer.ratio",
                      .value = ratio_text(now.ratio),
                      .change = [tracer](std::string_view value) { return set_ratio(tracer, value); },
                      .read = [tracer] { return ratio_text(tracer.options().ratio); }});
  add_option(server, {.name = "tracer.failed_calls",
                      .value = rpc::option_text(now.failed_calls),
                      .change = [tracer](std::string_view value) { return set_failed_calls(tracer, value); },
                      .read = [tracer] { return rpc::option_text(tracer.options().failed_calls); }});
  add_option(server, {.name = "tracer.slow_calls",
                      .value = rpc::option_text(now.slow_calls),
                      .change = [tracer](std::string_view value) { return set_slow_calls(tracer, value); },
                      .read = [tracer] { return rpc::option_text(tracer.options().slow_calls); }});
}

Task<Result<std::string>> change_option_by_post(PageState& state, HttpRequest& request) {
  const std::string name = query_of(request.query(), "name");
  // A form of the page sends the value as its body.
  const bool in_query = has_value(request.query());
  if (!in_query && !has_value(request.text())) {
    co_return fail(ErrorCode::invalid_argument,
                   "the request has no value: POST /options/change?name=NAME&value=VALUE, or send value=VALUE as the "
                   "body of a form");
  }
  const std::string value = query_of(in_query ? request.query() : request.text(), "value");
  const Result<void> changed = change_option(state.server, name, value, client_of(request));
  if (!changed) {
    Error why = changed.error();
    if (std::string absence = absence_of(state, name); !absence.empty()) why.text = std::move(absence);
    co_return fail(std::move(why));
  }
  const std::vector<std::size_t> late = co_await rpc::Inspector::options_taken(state.server, request.loop());
  const std::string note = silent_note(late);
  co_return "option " + harmless(name) + " is " + harmless(value) + (note.empty() ? note : ". " + note);
}

Task<Document> options_page(PageState& state, HttpRequest&) {
  const ServerOptions now = rpc::Inspector::current_options(state.server);
  const std::vector<OptionState> changeable = changeable_options(state.server);
  const bool changes = state.options.changes != PageAccess::off;
  const ServerOptions before;
  Document document{.path = "/options", .title = "Options"};
  document.updates = false;
  PageTable table{.key = "options", .title = "ServerOptions", .columns = option_columns()};
  Rows rows(table, changeable, changes);
#define HAWSER_OPTION(name) rows.add(#name, now.name, before.name)
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
  table.note = "include/hawser/server.h describes each; docs/operations.md says when a change takes effect.";
  if (changes) {
    table.note += " To change one: curl -X POST 'ADDRESS/options/change?name=NAME&value=VALUE'";
    table.note += state.token.empty() ? ", through a Unix socket, or as one of PagesOptions::operators."
                                      : ", with the token of the server: -H \"Hawser-Token: $TOKEN\".";
  }
  document.tables.push_back(std::move(table));
  PageTable own = own_options(changeable, changes);
  if (!own.rows.empty()) document.tables.push_back(std::move(own));
  co_return document;
}

}  // namespace hawser::observe
