#include "observe/document.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/decimal_text.h"
#include "json/writer.h"
#include "metrics/metric_text.h"

namespace hawser::observe {
namespace {

std::string json_number(double value) {
  std::string digits;
  json::append_number(digits, value);
  return digits;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// Harmless even where somebody puts it into a page.
void append_json(std::string& out, std::string_view text) { json::append_text(out, text, json::Escapes::html); }

void append_value(std::string& out, const PageCell& cell) {
  if (!cell.trend.empty()) {
    out += '[';
    for (std::size_t i = 0; i < cell.trend.size(); ++i) out += (i == 0 ? "" : ",") + json_number(cell.trend[i]);
    out += ']';
  } else if (!cell.json.empty()) {
    out += cell.json;
  } else {
    append_json(out, harmless(cell.text));
  }
}

int hex_of(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] == '%' && i + 2 < text.size() && hex_of(text[i + 1]) >= 0 && hex_of(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_of(text[i + 1]) * 16 + hex_of(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

PageCell number(std::uint64_t value) {
  const std::string digits = std::to_string(value);
  PageCell cell;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) cell.text += ',';
    cell.text += digits[i];
  }
  cell.json = digits;
  return cell;
}

PageCell decimal(double value) {
  PageCell cell(value == 0 ? std::string("0") : std::abs(value) >= 100 ? fixed_text(value, 0) : short_text(value, 3));
  cell.json = json_number(value);
  return cell;
}

PageCell bytes_cell(double value) {
  constexpr std::array<const char*, 6> units = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  std::size_t unit = 0;
  double shown = value;
  for (; shown >= 1024 && unit + 1 < units.size(); ++unit) shown /= 1024;
  PageCell cell((unit == 0 || shown >= 100 ? fixed_text(shown, 0) : short_text(shown, 3)) + units[unit]);
  cell.json = json_number(value);
  return cell;
}

PageCell duration_cell(double seconds) {
  const double size = std::abs(seconds);
  PageCell cell;
  if (size == 0) {
    cell.text = "0";
  } else if (size < 1e-3) {
    cell.text = short_text(seconds * 1e6, 3) + " us";
  } else if (size < 1) {
    cell.text = short_text(seconds * 1e3, 3) + " ms";
  } else if (size < 120) {
    cell.text = short_text(seconds, 3) + " s";
  } else if (size < 7200) {
    cell.text = fixed_text(seconds / 60, 0) + " min";
  } else if (size < 172'800) {
    cell.text = fixed_text(seconds / 3600, 1) + " h";
  } else {
    cell.text = fixed_text(seconds / 86'400, 1) + " d";
  }
  cell.json = json_number(seconds);
  return cell;
}

PageCell boolean(bool value) {
  PageCell cell(value ? "yes" : "no");
  cell.json = value ? "true" : "false";
  return cell;
}

std::string harmless(std::string_view text, std::size_t bytes_max) {
  std::string valid = metrics::valid_text(text, bytes_max);
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    if (byte < 0x20 || byte == 0x7F) valid[i] = '?';
    // U+0080 to U+009F are control characters too.
    if (byte == 0xC2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xA0) {
      valid.replace(i, 2, "?");
    }
  }
  if (valid.size() < text.size() && text.size() > bytes_max) valid += "...";
  return valid;
}

std::string markup(std::string_view text, std::size_t bytes_max) {
  std::string out;
  for (const char c : harmless(text, bytes_max)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string query_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
    } else {
      std::array<char, 4> code;
      std::snprintf(code.data(), code.size(), "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code.data();
    }
  }
  return out;
}

std::string query_of(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    if (one.substr(0, equals) == name) return decoded(one.substr(std::min(equals + 1, one.size())));
  }
  return {};
}

std::string render_text(const Document& document) {
  std::string out = document.title + "\n";
  for (const PageTable& table : document.tables) {
    out += "\n" + (table.title.empty() ? std::string() : "## " + table.title + "\n");
    std::vector<std::vector<std::string>> lines;
    if (!table.facts) {
      lines.emplace_back();
      for (const Column& column : table.columns) lines.back().push_back(column.title);
    }
    for (const std::vector<PageCell>& row : table.rows) {
      lines.emplace_back();
      for (const PageCell& cell : row) lines.back().push_back(harmless(cell.text));
    }
    std::vector<std::size_t> widths(table.columns.size());
    for (const auto& line : lines) {
      for (std::size_t i = 0; i < line.size() && i < widths.size(); ++i) {
        widths[i] = std::max(widths[i], std::min<std::size_t>(characters(line[i]), 60));
      }
    }
    for (const auto& line : lines) {
      std::string text;
      for (std::size_t i = 0; i < line.size() && i < widths.size(); ++i) {
        const std::size_t size = characters(line[i]);
        const std::string pad(size < widths[i] ? widths[i] - size : 0, ' ');
        const bool right = table.columns[i].number && !table.facts;
        text += (i == 0 ? "" : "  ") + (right ? pad + line[i] : line[i] + pad);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
    if (table.rows.empty()) out += "(none)\n";
    if (!table.note.empty()) out += harmless(table.note) + "\n";
    if (!table.next.empty()) out += "next: " + table.next + "\n";
  }
  return out;
}

std::string render_json(const Document& document) {
  std::string out = "{";
  bool first = true;
  for (const PageTable& table : document.tables) {
    if (!std::exchange(first, false)) out += ",\n";
    append_json(out, table.key);
    out += table.facts ? ":{" : ":[";
    bool first_row = true;
    for (const std::vector<PageCell>& row : table.rows) {
      if (!std::exchange(first_row, false)) out += ",\n";
      if (table.facts) {
        append_json(out, harmless(row[0].text));
        out += ':';
        append_value(out, row[1]);
        continue;
      }
      out += '{';
      for (std::size_t i = 0; i < row.size() && i < table.columns.size(); ++i) {
        if (i != 0) out += ',';
        append_json(out, table.columns[i].key);
        out += ':';
        append_value(out, row[i]);
      }
      out += '}';
    }
    out += table.facts ? "}" : "]";
    if (!table.next.empty()) {
      out += ",\n";
      append_json(out, table.key + "_next");
      out += ':';
      append_json(out, table.next);
    }
  }
  return out + "}\n";
}

}  // namespace hawser::observe
