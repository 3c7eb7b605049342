#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "observe/page_state.h"

namespace hawser::observe {
namespace {

constexpr std::size_t spans_read_max = 2'000;
constexpr std::size_t slowest_rows = 20;
constexpr std::size_t depth_max = 32;

template <std::size_t size>
std::string hex(const std::array<std::uint8_t, size>& id) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : id) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string_view reason_of(const Span& span) noexcept {
  switch (span.reason) {
    case Span::Reason::sampled: return "sampled";
    case Span::Reason::failed: return "failed";
    case Span::Reason::slow: return "slow";
  }
  return "";
}

const std::vector<Column> columns = {{"trace", "trace"},
                                     {"kind", "side"},
                                     {"method", "method"},
                                     {"ago", "ended", true},
                                     {"duration", "duration", true},
                                     {"outcome", "outcome"},
                                     {"peer", "peer"},
                                     {"protocol", "protocol"},
                                     {"request_bytes", "request", true},
                                     {"reply_bytes", "reply", true},
                                     {"recorded", "recorded because"}};

std::vector<PageCell> row_of(const Span& span, std::chrono::system_clock::time_point now, std::size_t depth) {
  PageCell trace(hex(span.trace_id));
  trace.link = "/traces?trace=" + trace.text;
  const auto ended = span.begin + std::chrono::duration_cast<std::chrono::system_clock::duration>(span.duration);
  PageCell outcome(span.failed ? std::string(to_string(span.code)) + ": " + span.error : "ok");
  outcome.alarm = span.failed;
  std::string method;
  for (std::size_t i = 0; i < depth; ++i) method += "\u00b7 ";
  return {std::move(trace),
          span.kind == Span::Kind::server ? "server" : "client",
          method + span.method,
          duration_cell(std::max(0.0, std::chrono::duration<double>(now - ended).count())),
          duration_cell(span.duration),
          std::move(outcome),
          span.peer,
          span.protocol,
          bytes_cell(static_cast<double>(span.request_bytes)),
          bytes_cell(static_cast<double>(span.reply_bytes)),
          PageCell(reason_of(span))};
}

// The spans of one trace below `parent`, in the order of their beginnings.
class Tree {
 public:
  Tree(std::vector<Span> of, PageTable& into) : spans_(std::move(of)), table_(into) {
    std::ranges::sort(spans_, {}, &Span::begin);
    std::set<std::array<std::uint8_t, 8>> known;
    for (const Span& span : spans_) known.insert(span.span_id);
    // A span whose parent was recorded elsewhere, or not at all, is a root here.
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const Span& span = spans_[i];
      const bool root = span.parent_id == span.span_id || !known.contains(span.parent_id);
      (root ? roots_ : children_[span.parent_id]).push_back(i);
    }
  }
  void write(std::chrono::system_clock::time_point now) {
    for (const std::size_t root : roots_) write(root, now, 0);
    // Peers choose ids: spans that are one another's parents hang below no root.
    for (std::size_t i = 0; i < spans_.size(); ++i) write(i, now, 0);
  }

 private:
  void write(std::size_t index, std::chrono::system_clock::time_point now, std::size_t depth) {
    if (!written_.insert(index).second || table_.rows.size() >= rows_max) return;
    table_.rows.push_back(row_of(spans_[index], now, depth));
    if (depth >= depth_max) return;
    const auto below = children_.find(spans_[index].span_id);
    if (below == children_.end()) return;
    for (const std::size_t child : below->second) write(child, now, depth + 1);
  }

  std::vector<Span> spans_;
  PageTable& table_;
  std::vector<std::size_t> roots_;
  std::map<std::array<std::uint8_t, 8>, std::vector<std::size_t>> children_;
  std::set<std::size_t> written_;
};

}  // namespace

Task<Document> traces_page(PageState& state, HttpRequest& request) {
  Document document{.path = "/traces", .title = "Traces"};
  PageTable latest{.key = "latest", .title = "The latest", .columns = columns};
  if (!state.options.tracer) {
    latest.note = "No calls are recorded: give enable_pages() a Tracer, and use() its interceptors (docs/tracing.md).";
    document.tables.push_back(std::move(latest));
    co_return document;
  }
  const Tracer& tracer = *state.options.tracer;
  const auto now = std::chrono::system_clock::now();
  std::vector<Span> spans = tracer.latest(spans_read_max);
  if (const std::string wanted = query_of(request.query(), "trace"); !wanted.empty()) {
    std::erase_if(spans, [&](const Span& span) { return hex(span.trace_id) != wanted; });
    PageTable table{.key = "trace", .title = "Trace " + harmless(wanted, 64), .columns = columns};
    const std::size_t found = spans.size();
    Tree(std::move(spans), table).write(now);
    table.note = found == 0 ? "No span of this trace is kept here any more."
                            : "Spans of this process only. A dot stands for each caller.";
    if (found > table.rows.size()) table.note += " " + std::to_string(found - table.rows.size()) + " more.";
    document.tables.push_back(std::move(table));
    co_return document;
  }
  for (const Span& span : spans) {
    if (latest.rows.size() == rows_max) break;
    latest.rows.push_back(row_of(span, now, 0));
  }
  const std::size_t kept = spans.size();
  std::ranges::sort(spans, [](const Span& a, const Span& b) { return a.duration > b.duration; });
  PageTable slowest{.key = "slowest", .title = "The slowest that are kept", .columns = columns};
  for (const Span& span : spans) {
    if (slowest.rows.size() == slowest_rows) break;
    slowest.rows.push_back(row_of(span, now, 0));
  }
  const Tracer::Counters counters = tracer.counters();
  PageTable facts{.key = "tracer", .title = "Recording", .columns = {{"name", ""}, {"value", "", true}}, .facts = true};
  facts.rows.push_back({"recorded", number(counters.recorded)});
  facts.rows.push_back({"kept", number(kept)});
  facts.rows.push_back({"lost", number(counters.lost)});
  facts.rows.push_back({"exported", number(counters.exported)});
  facts.rows.push_back({"export_missed", number(counters.export_missed)});
  facts.rows.push_back({"export_failed", number(counters.export_failed)});
  facts.rows.push_back({"export_retries", number(counters.export_retries)});
  document.tables.push_back(std::move(slowest));
  document.tables.push_back(std::move(latest));
  document.tables.push_back(std::move(facts));
  co_return document;
}

}  // namespace hawser::observe
