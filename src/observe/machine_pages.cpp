#include <algorithm>
#include <chrono>
#include <utility>

#include "heap/idle_memory.h"
#include "observe/machine_metrics.h"
#include "observe/page_state.h"
#include "os/process_id.h"
#include "rpc/server/inspector.h"
#include "rpc/server/loop_report.h"

namespace hawser::observe {
namespace {

using rpc::Inspector;

constexpr double ns_per_second = 1e9;

PageTable facts(std::string key, std::string title, std::vector<std::vector<PageCell>> rows) {
  return {.key = std::move(key),
          .title = std::move(title),
          .columns = {{"name", ""}, {"value", ""}},
          .rows = std::move(rows),
          .facts = true};
}

// Devices may take milliseconds for their counters.
Document read_rdma() {
  Document document{.path = "/rdma", .title = "RDMA"};
  PageTable ports{.key = "ports",
                  .title = "Ports",
                  .columns = {{"device", "device"},
                              {"port", "port", true},
                              {"state", "state"},
                              {"rate", "rate"},
                              {"link", "link"},
                              {"firmware", "firmware"}}};
  for (const PortFacts& one : rdma_ports()) {
    ports.rows.push_back({one.device, one.port, one.state, one.rate, one.link, one.firmware});
  }
  PageTable counters{
      .key = "counters",
      .title = "Counters that are not 0",
      .columns = {{"device", "device"}, {"port", "port", true}, {"counter", "counter"}, {"value", "value", true}}};
  for (const PortCounter& one : rdma_counters()) {
    if (one.value == "0") continue;
    PageCell cell(one.value);
    cell.json = one.value;
    counters.rows.push_back({one.device, one.port, one.name, std::move(cell)});
  }
  if (ports.rows.empty()) ports.note = "This machine has no RDMA device. `hawser doctor` says what is missing.";
  counters.note =
      "rnr_nak_retry_err, local_ack_timeout_err, packet_seq_err and out_of_sequence that grow mean loss: "
      "docs/transports/rdma.md.";
  document.tables.push_back(std::move(ports));
  document.tables.push_back(std::move(counters));
  return document;
}

}  // namespace

Task<Document> rdma_page(PageState&, HttpRequest& request) {
  Result<Document> document = co_await request.loop().offload(read_rdma);
  if (document) co_return std::move(*document);
  Document failed{.path = "/rdma", .title = "RDMA"};
  failed.tables.push_back(facts("error", {}, {{"error", document.error().text}}));
  co_return failed;
}

Task<Document> loops_page(PageState& state, HttpRequest&) {
  Document document{.path = "/loops", .title = "Loops"};
  PageTable table{.key = "loops",
                  .title = {},
                  .columns = {{"loop", "loop", true},
                              {"utilisation", "busy, last second", true},
                              {"busy", "busy in all", true},
                              {"ticks", "ticks", true},
                              {"p50", "tick p50", true},
                              {"p99", "tick p99", true},
                              {"longest", "longest tick", true},
                              {"longest_work", "last call in the longest tick"},
                              {"connections", "connections", true},
                              {"calls", "calls", true}}};
  std::size_t number_of_loop = 0;
  for (const rpc::LoopReport& loop : Inspector::loops(state.server)) {
    HistogramSnapshot lengths;
    lengths.counts = loop.ticks.lengths;
    for (const std::uint64_t count : lengths.counts) lengths.count += count;
    const double longest = std::chrono::duration<double>(loop.ticks.longest).count();
    const double busy = state.trends.utilisation(number_of_loop);
    PageCell utilisation = decimal(100 * busy);
    utilisation.text += " %";
    utilisation.alarm = busy > 0.9;
    PageCell longest_cell = duration_cell(longest);
    longest_cell.alarm = longest > 0.1;
    table.rows.push_back(
        {number(number_of_loop), std::move(utilisation),
         duration_cell(std::chrono::duration<double>(loop.ticks.busy).count()), number(loop.ticks.ticks),
         duration_cell(static_cast<double>(lengths.quantile(0.5)) / ns_per_second),
         duration_cell(static_cast<double>(lengths.quantile(0.99)) / ns_per_second), std::move(longest_cell),
         loop.ticks.longest_work.empty() ? PageCell("(a coroutine, a timer or posted work)")
                                         : PageCell(loop.ticks.longest_work),
         number(loop.connections), number(loop.calls)});
    ++number_of_loop;
  }
  table.note =
      "A tick beyond 1 ms delays every other call of its loop. The method is the one that was called last in the "
      "tick: if it blocks, register it with HandlerOptions::offload.";
  document.tables.push_back(std::move(table));
  co_return document;
}

namespace {

std::vector<PageCell> caches_row(std::string owner, std::size_t threads, const CachedMemory& cached) {
  CachedMemory max = cached_memory_max();
  const std::size_t bytes_max = threads * (max.block_bytes + max.frame_bytes + max.secret_bytes);
  return {std::move(owner),
          number(threads),
          bytes_cell(static_cast<double>(cached.block_bytes)),
          bytes_cell(static_cast<double>(cached.frame_bytes)),
          bytes_cell(static_cast<double>(cached.secret_bytes)),
          bytes_cell(static_cast<double>(bytes_max))};
}

PageTable caches_table(const std::vector<rpc::LoopReport>& loops) {
  PageTable table{.key = "caches",
                  .title = "Memory that threads keep for their next use",
                  .columns = {{"owner", "owner"},
                              {"threads", "threads", true},
                              {"blocks", "messages", true},
                              {"frames", "coroutines", true},
                              {"secrets", "TLS", true},
                              {"limit", "limit", true}}};
  std::size_t number_of_loop = 0;
  for (const rpc::LoopReport& loop : loops) {
    const std::string name = "loop " + std::to_string(number_of_loop++);
    table.rows.push_back(caches_row(name, 1, loop.ticks.cached));
    if (loop.ticks.offload_threads == 0) continue;
    table.rows.push_back(caches_row("offload, " + name, loop.ticks.offload_threads, loop.ticks.offload_cached));
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(idle_memory_period).count();
  table.note = "What a thread has not used for " + std::to_string(seconds) +
               " s is returned to the allocator. This is not memory of connections or calls.";
  return table;
}

Document allocator_facts() {
  const AllocatorBytes bytes = allocator_bytes();
  Document document;
  document.tables.push_back(facts("allocator", "Allocator (malloc)",
                                  {{"used", bytes_cell(static_cast<double>(bytes.used))},
                                   {"free, kept by it", bytes_cell(static_cast<double>(bytes.free))}}));
  return document;
}

}  // namespace

Task<Document> memory_page(PageState& state, HttpRequest& request) {
  Document document{.path = "/memory", .title = "Memory"};
  PageTable budgets{.key = "budgets",
                    .title = "Received data that is kept, and replies that wait",
                    .columns = {{"loop", "loop", true},
                                {"used", "used", true},
                                {"unsent", "of which replies", true},
                                {"limit", "limit", true},
                                {"part", "part", true}}};
  std::size_t number_of_loop = 0;
  const std::vector<rpc::LoopReport> loops = Inspector::loops(state.server);
  for (const rpc::LoopReport& loop : loops) {
    const double part = loop.receive_bytes_max == 0
                            ? 0
                            : static_cast<double>(loop.receive_bytes) / static_cast<double>(loop.receive_bytes_max);
    PageCell shown = decimal(100 * part);
    shown.text += " %";
    shown.alarm = part > 0.5;
    budgets.rows.push_back({number(number_of_loop++), bytes_cell(static_cast<double>(loop.receive_bytes)),
                            bytes_cell(static_cast<double>(loop.unsent_bytes)),
                            bytes_cell(static_cast<double>(loop.receive_bytes_max)), std::move(shown)});
  }
  budgets.note =
      "Beyond the limit (ServerOptions::receive_bytes_max) requests are refused with `overloaded`, and replies wait "
      "with at most 64 KiB for each connection. Connections by memory: /connections.";
  document.tables.push_back(std::move(budgets));
  document.tables.push_back(caches_table(loops));
  Result<Document> allocator = co_await request.loop().offload(allocator_facts);
  if (allocator) document.tables.push_back(std::move(allocator->tables.front()));
  document.tables.push_back(facts("refusals", "Refusals",
                                  {{"memory refusals", number(state.server.counters().memory_refusals)},
                                   {"slow peers", number(state.server.counters().slow_peers)}}));
  document.tables.push_back(facts("process", "Process",
                                  {{"resident", bytes_cell(process_bytes("VmRSS"))},
                                   {"resident, most", bytes_cell(process_bytes("VmHWM"))},
                                   {"locked", bytes_cell(process_bytes("VmLck"))},
                                   {"pinned", bytes_cell(process_bytes("VmPin"))},
                                   {"swapped", bytes_cell(process_bytes("VmSwap"))}}));
  co_return document;
}

Task<Document> version_page(PageState& state, HttpRequest&) {
  Document document{.path = "/version", .title = "Version"};
  std::string transports;
  for (const auto& transport : Inspector::transports(state.server)) transports += transport + ", ";
  std::string protocols;
  for (const std::string& protocol : Inspector::protocols(state.server)) {
    protocols += (protocols.empty() ? "" : ", ") + protocol;
  }
  const double up = std::chrono::duration<double>(std::chrono::steady_clock::now() - state.started).count();
  document.tables.push_back(facts("version", {},
                                  {{"program", state.options.title},
                                   {"hawser", HAWSER_VERSION},
                                   {"compiler", __VERSION__},
                                   {"address", state.server.address()},
                                   {"process", number(static_cast<std::uint64_t>(process_id()))},
                                   {"running for", duration_cell(up)},
                                   {"protocols", protocols},
                                   {"transports", transports + "stream"}}));
  co_return document;
}

namespace {

PageCell trace_cell(const std::string& id, bool traces) {
  PageCell cell(id);
  if (traces && !id.empty()) cell.link = "/traces?trace=" + id;
  return cell;
}

}  // namespace

Task<Document> log_page(PageState& state, HttpRequest&) {
  Document document{.path = "/log", .title = "Log"};
  if (!state.options.log) {
    PageTable none{.key = "lines", .title = {}, .columns = {{"text", "text"}}};
    none.note = "The program keeps no lines: set LoopOptions::log to RecentLog::sink(), and PagesOptions::log.";
    document.tables.push_back(std::move(none));
    co_return document;
  }
  PageTable level = facts("level", "Level", {{"passed on", to_string(state.options.log->level())}});
  if (state.options.changes != PageAccess::off) {
    for (const LogLevel one : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
      PageCell button("Pass on " + std::string(to_string(one)) + " and above");
      button.link = "/log/level?level=" + std::string(to_string(one));
      button.button = true;
      level.rows.push_back({to_string(one), std::move(button)});
    }
  }
  document.tables.push_back(std::move(level));
  PageTable table{.key = "lines",
                  .title = "Lines, the newest first",
                  .columns = {{"age", "age", true},
                              {"level", "level"},
                              {"component", "component"},
                              {"text", "text"},
                              {"trace_id", "trace"}}};
  for (const RecentLog::Line& line : state.options.log->lines(rows_max)) {
    PageCell shown(to_string(line.level));
    shown.alarm = line.level >= LogLevel::warning;
    const auto age = std::chrono::system_clock::now() - line.at;
    table.rows.push_back({duration_cell(std::max(0.0, std::chrono::duration<double>(age).count())), std::move(shown),
                          line.component, line.text, trace_cell(line.trace_id, state.options.tracer.has_value())});
  }
  if (const std::uint64_t dropped = state.options.log->dropped(); dropped != 0) {
    table.note = number(dropped).text + " older lines are not kept any more.";
  }
  document.tables.push_back(std::move(table));
  co_return document;
}

Task<Result<std::string>> set_log_level(PageState& state, HttpRequest& request) {
  const std::string wanted = query_of(request.query(), "level");
  for (const LogLevel one : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    if (to_string(one) != wanted) continue;
    RecentLog log = *state.options.log;
    log.set_level(one);
    co_return "the log passes on " + wanted + " and above";
  }
  co_return fail(ErrorCode::invalid_argument, "level is one of debug, info, warning and error");
}

}  // namespace hawser::observe
