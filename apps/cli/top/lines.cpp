// The view of a sample for people.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/utf8.h"
#include "cli/top/sample.h"
#include "protocol/http/json/value_types.h"

namespace hawser::cli {
namespace {

// Cuts or fills `text` to `columns` characters. The text has neither control characters nor invalid UTF-8.
std::string fitted(std::string_view text, std::size_t columns, bool right) {
  std::size_t bytes = 0;
  std::size_t characters = 0;
  while (bytes < text.size() && characters < columns) {
    bytes += std::max<std::size_t>(utf8_character_bytes(text.substr(bytes)), 1);
    ++characters;
  }
  std::string shown(text.substr(0, bytes));
  if (bytes < text.size() && columns != 0) {
    // The last character shows that more follows.
    do shown.pop_back();
    while (!shown.empty() && !is_utf8(shown));
    shown += '~';
  }
  const std::string fill(columns - characters, ' ');
  return right ? fill + shown : shown + fill;
}

std::string count(double value) {
  if (value < 100) return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}", value);
  if (value < 100'000) return fmt::format("{:.0f}", value);
  if (value < 1e8) return fmt::format("{:.0f}k", value / 1e3);
  return fmt::format("{:.0f}M", value / 1e6);
}

std::string count(std::uint64_t value) { return count(static_cast<double>(value)); }

std::string bytes(double value) {
  constexpr std::array<const char*, 5> units = {"B", "K", "M", "G", "T"};
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f}{}", value, unit == 0 || value >= 100 ? 0 : 1, units[unit]);
}

std::string duration(std::optional<double> seconds) {
  if (!seconds) return "-";
  if (*seconds < 1e-3) return fmt::format("{:.0f}us", *seconds * 1e6);
  if (*seconds < 1) return fmt::format("{:.1f}ms", *seconds * 1e3);
  return fmt::format("{:.2f}s", *seconds);
}

// A table whose first column takes the columns that are left.
class Layout {
 public:
  explicit Layout(TopSize size) : size_(size) {}

  void line(std::string_view text) {
    if (lines_.size() >= size_.rows) return;
    std::string shown = fitted(text, size_.columns, false);
    shown.erase(shown.find_last_not_of(' ') + 1);
    lines_.push_back(std::move(shown));
  }
  struct Column {
    const char* title;
    std::size_t columns;  // 0: what is left.
    bool left = false;
  };
  void table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows, std::size_t all,
             const char* noun, std::size_t rows_max) {
    std::size_t taken = 0;
    for (const Column& column : columns) taken += column.columns + 1;
    const std::size_t rest = std::max<std::size_t>(size_.columns > taken ? size_.columns - taken : 0, 12);
    const auto joined = [&](auto&& cell) {
      std::string text;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::size_t width = columns[i].columns == 0 ? std::min<std::size_t>(rest, 60) : columns[i].columns;
        text += (i == 0 ? "" : " ") + fitted(cell(i), width, columns[i].columns != 0 && !columns[i].left);
      }
      return text;
    };
    line("");
    line(joined([&](std::size_t i) { return std::string(columns[i].title); }));
    const std::size_t shown = std::min(rows.size(), rows_max);
    for (std::size_t row = 0; row < shown; ++row) line(joined([&](std::size_t i) { return rows[row][i]; }));
    if (all > shown) line(fmt::format("{} more {}", all - shown, noun));
  }
  std::vector<std::string> lines() && { return std::move(lines_); }

 private:
  const TopSize size_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> to_lines(const TopSample& sample, const std::string& address, TopSize size) {
  using protocol::http::printable;
  Layout view(size);
  view.line(fmt::format("{}  {}  {} calls/s  {} calls in flight  {} connections", printable(address),
                        printable(sample.status), count(sample.calls_rate), count(sample.in_flight),
                        count(sample.connections_open)));
  // Lines beside rows: the first one, and for each table an empty one, the titles, and the number of further rows.
  constexpr std::size_t other_lines = 1 + 3 * 3;
  const std::size_t rows = size.rows > other_lines ? size.rows - other_lines : 0;
  const std::size_t loops = std::min(sample.loops.size(), rows / 4);
  const std::size_t connections = std::min(sample.connections.size(), rows / 4);
  const std::size_t methods = rows - loops - connections;

  std::vector<std::vector<std::string>> cells;
  for (const TopSample::Method& one : sample.methods) {
    cells.push_back({printable(one.name), count(one.calls_rate), count(one.errors_rate), count(one.in_flight),
                     duration(one.p50), duration(one.p90), duration(one.p99), count(one.calls), count(one.errors)});
  }
  view.table({{"METHOD", 0},
              {"CALLS/S", 8},
              {"ERRORS/S", 8},
              {"FLIGHT", 7},
              {"P50", 8},
              {"P90", 8},
              {"P99", 8},
              {"CALLS", 8},
              {"ERRORS", 7}},
             cells, cells.size(), "methods", methods);
  cells.clear();
  for (const TopSample::Connection& one : sample.connections) {
    cells.push_back({printable(one.peer), printable(one.protocol), printable(one.transport), count(one.calls_rate),
                     count(one.in_flight), bytes(one.received_rate), bytes(one.sent_rate),
                     bytes(static_cast<double>(one.backlog))});
  }
  view.table({{"PEER", 0},
              {"PROTOCOL", 10, true},
              {"OVER", 6, true},
              {"CALLS/S", 8},
              {"FLIGHT", 7},
              {"IN/S", 8},
              {"OUT/S", 8},
              {"BACKLOG", 8}},
             cells, std::max<std::size_t>(sample.connections_open, cells.size()), "connections", connections);
  cells.clear();
  for (const TopSample::Loop& one : sample.loops) {
    cells.push_back({fmt::format("{}", one.number), fmt::format("{:.1f}%", one.busy_percent), duration(one.tick_p99),
                     duration(one.tick_longest), count(one.connections), count(one.calls)});
  }
  view.table({{"LOOP", 0}, {"BUSY", 8}, {"TICK P99", 9}, {"LONGEST", 9}, {"CONNECTIONS", 11}, {"CALLS", 9}}, cells,
             cells.size(), "loops", loops);
  return std::move(view).lines();
}

}  // namespace hawser::cli
