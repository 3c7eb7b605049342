#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "observe/page_state.h"
#include "rpc/server/inspector.h"

namespace hawser::observe {
namespace {

using rpc::Inspector;

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& one : texts) all += (all.empty() ? "" : "; ") + one;
  return all.empty() ? "-" : all;
}

std::string id_of(std::size_t loop, std::size_t slot, std::uint64_t serial) {
  return std::to_string(loop) + "." + std::to_string(slot) + "." + std::to_string(serial);
}

}  // namespace

Task<Document> connections_page(PageState& state, HttpRequest& request) {
  const Inspector::Position from{static_cast<std::size_t>(number_of(request, "loop", 0)),
                                 static_cast<std::size_t>(number_of(request, "slot", 0))};
  const Inspector::Connections found = co_await Inspector::connections(state.server, request.loop(), from, rows_max);
  Document document{.path = "/connections", .title = "Connections"};
  PageTable table{.key = "connections",
                  .title = number(state.server.counters().connections_open).text + " open",
                  .columns = {{"id", "id"},
                              {"peer", "peer"},
                              {"protocol", "protocol"},
                              {"transport", "transport"},
                              {"declined", "transports not used, and why"},
                              {"age", "age", true},
                              {"calls", "calls", true},
                              {"calls_rate", "calls/s", true},
                              {"in_flight", "in flight", true},
                              {"received", "received", true},
                              {"received_rate", "in, bytes/s", true},
                              {"sent", "sent", true},
                              {"sent_rate", "out, bytes/s", true},
                              {"backlog", "backlog", true},
                              {"round_trip", "round trip", true},
                              {"window", "window", true},
                              {"retransmissions", "sent again", true},
                              {"memory", "memory", true},
                              {"details", "credits and queues"},
                              {"paused", "paused"},
                              {"protection", "protection"},
                              {"identity", "identity"}}};
  for (const rpc::ConnectionReport& one : found.rows) {
    table.rows.push_back({id_of(one.loop, one.slot, one.serial),
                          one.peer,
                          one.protocol,
                          one.transport,
                          joined(one.declined),
                          duration_cell(one.age),
                          number(one.calls),
                          decimal(one.calls_rate),
                          number(one.active),
                          bytes_cell(static_cast<double>(one.received_bytes)),
                          bytes_cell(one.received_rate),
                          bytes_cell(static_cast<double>(one.sent_bytes)),
                          bytes_cell(one.sent_rate),
                          bytes_cell(static_cast<double>(one.backlog)),
                          one.link ? duration_cell(one.link->round_trip) : PageCell("-"),
                          one.link ? bytes_cell(static_cast<double>(one.link->window_bytes)) : PageCell("-"),
                          one.link ? number(one.link->retransmissions) : PageCell("-"),
                          bytes_cell(static_cast<double>(one.memory_bytes)),
                          one.details,
                          boolean(one.paused),
                          one.protection,
                          one.identity});
  }
  table.note = "An id is loop.slot.serial. Rates are those since somebody last looked.";
  if (const std::string silent = silent_note(found.silent); !silent.empty()) table.note += " " + silent;
  if (found.next) {
    table.next = "/connections?loop=" + std::to_string(found.next->loop) + "&slot=" + std::to_string(found.next->slot);
  }
  document.tables.push_back(std::move(table));
  co_return document;
}

Task<Document> calls_page(PageState& state, HttpRequest& request) {
  const Inspector::Calls found = co_await Inspector::calls(state.server, request.loop(), rows_max);
  const bool changes = state.options.changes != PageAccess::off;
  Document document{.path = "/calls", .title = "Calls in flight"};
  PageTable table{.key = "calls",
                  .title = number(found.all).text + " in flight, the oldest first",
                  .columns = {{"id", "id"},
                              {"method", "method"},
                              {"age", "age", true},
                              {"deadline_in", "deadline in", true},
                              {"waits_for", "waits for"},
                              {"peer", "peer"},
                              {"protocol", "protocol"}}};
  if (changes) table.columns.push_back({"cancel", ""});
  for (const rpc::CallReport& one : found.rows) {
    const std::string id = id_of(one.loop, one.slot, one.serial) + "." + std::to_string(one.call);
    table.rows.push_back({id, one.method, duration_cell(one.age), one.left ? duration_cell(*one.left) : PageCell("-"),
                          one.waits_for, one.peer, one.protocol});
    if (!changes) continue;
    PageCell cancel("Cancel");
    cancel.link = "/calls/cancel?id=" + id;
    cancel.button = true;
    table.rows.back().push_back(std::move(cancel));
  }
  table.note = "Calls that plain functions answer at once are never seen here.";
  if (changes) table.note += " To cancel one: curl -X POST ADDRESS/calls/cancel?id=ID. Its token is stopped.";
  if (found.all > found.rows.size()) table.note += " " + number(found.all - found.rows.size()).text + " more.";
  if (const std::string silent = silent_note(found.silent); !silent.empty()) table.note += " " + silent;
  document.tables.push_back(std::move(table));
  co_return document;
}

Task<Result<std::string>> cancel_call(PageState& state, HttpRequest& request) {
  const std::string id = query_of(request.query(), "id");
  std::array<std::uint64_t, 4> parts{};
  const char* at = id.data();
  const char* const end = id.data() + id.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [after, error] = std::from_chars(at, end, parts[i]);
    const bool last = i + 1 == parts.size();
    // A larger number of a call must not stop another call, whose number is its low bits.
    const bool beyond = last && parts[i] > std::numeric_limits<std::uint32_t>::max();
    if (beyond || error != std::errc() || (last ? after != end : after == end || *after != '.')) {
      co_return fail(ErrorCode::invalid_argument, "the id of a call has the form loop.slot.serial.call, as on /calls");
    }
    at = last ? after : after + 1;
  }
  rpc::CallReport call{.loop = static_cast<std::size_t>(parts[0]),
                       .slot = static_cast<std::size_t>(parts[1]),
                       .serial = parts[2],
                       .call = static_cast<std::uint32_t>(parts[3]),
                       .method = {},
                       .peer = {},
                       .protocol = {},
                       .waits_for = {}};
  const bool found = co_await Inspector::cancel(state.server, request.loop(), std::move(call));
  if (!found) co_return fail(ErrorCode::unknown_method, "call " + harmless(id) + " is not in flight");
  co_return "call " + id + " was requested to stop";
}

}  // namespace hawser::observe
