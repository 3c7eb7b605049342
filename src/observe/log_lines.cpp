// The forms of a line of a log.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/utf8.h"
#include "hawser/structured_log.h"
#include "json/writer.h"

namespace hawser {
namespace {

constexpr std::string_view cut_mark = "...";
constexpr std::size_t component_bytes_max = 64;

enum class LogLineForm : std::uint8_t {
  line,   // Control characters and invalid bytes are '?'.
  lines,  // Likewise, with line feeds and tabs.
  json,
};

// True for U+0000 to U+001F, U+007F, U+0080 to U+009F, and U+2028 and U+2029, which end lines in some programs.
bool is_control(std::string_view character) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  return character.size() == 3 && byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9);
}

// Returns the bytes of the characters that lie within the first `bytes_max` bytes as a whole.
std::size_t whole_characters(std::string_view text, std::size_t bytes_max) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = std::max<std::size_t>(utf8_character_bytes(text.substr(at)), 1);
    if (bytes > bytes_max - at) break;
    at += bytes;
  }
  return at;
}

void append_visible(std::string& out, std::string_view text, LogLineForm form) {
  while (!text.empty()) {
    const std::size_t bytes = utf8_character_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(bytes, 1));
    const bool kept = form == LogLineForm::lines && (character == "\n" || character == "\t");
    if (kept || (bytes != 0 && !is_control(character))) {
      out += character;
    } else {
      out += '?';
    }
    text.remove_prefix(character.size());
  }
}

// Appends `text` in the form. At most `bytes_max` of its bytes are used.
void append(std::string& out, std::string_view text, LogLineForm form, std::size_t bytes_max = log_text_bytes_max) {
  const bool cut = text.size() > bytes_max;
  if (cut) text = text.substr(0, whole_characters(text, bytes_max - cut_mark.size()));
  if (form == LogLineForm::json) {
    json::append_characters(out, text);
  } else {
    append_visible(out, text, form);
  }
  if (cut) out += cut_mark;
}

// RFC 3339 in UTC, with microseconds.
std::string time_text(std::chrono::system_clock::time_point at) {
  using namespace std::chrono;
  const auto day = floor<days>(at);
  const year_month_day date(day);
  const hh_mm_ss time(floor<microseconds>(at - day));
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02uT%02d:%02d:%02d.%06dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                static_cast<int>(time.seconds().count()), static_cast<int>(time.subseconds().count()));
  return text.data();
}

// Priorities of syslog, by which journalctl -p selects.
char priority(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug: return '7';
    case LogLevel::info: return '6';
    case LogLevel::warning: return '4';
    case LogLevel::error: return '3';
  }
  return '6';
}

// A field whose value may have line feeds: the name, a line feed, the length in 64 bits (little endian), the value.
void append_field(std::string& entry, std::string_view name, std::string_view value) {
  entry += name;
  entry += '\n';
  for (unsigned shift = 0; shift < 64; shift += 8) entry += static_cast<char>((value.size() >> shift) & 0xFF);
  entry += value;
  entry += '\n';
}

}  // namespace

std::string text_line(const LogRecord& record) {
  std::string line = time_text(record.at);
  line += ' ';
  line += to_string(record.level);
  line += " [";
  append(line, record.component, LogLineForm::line, component_bytes_max);
  line += "] ";
  append(line, record.text, LogLineForm::line);
  if (record.trace != nullptr) {
    line += " trace_id=" + record.trace->trace_id_text() + " span_id=" + record.trace->span_id_text();
  }
  return line + "\n";
}

std::string json_line(const LogRecord& record) {
  std::string line = "{\"time\":\"" + time_text(record.at) + "\",\"level\":\"";
  line += to_string(record.level);
  line += "\",\"component\":\"";
  append(line, record.component, LogLineForm::json, component_bytes_max);
  line += "\",\"message\":\"";
  append(line, record.text, LogLineForm::json);
  if (record.trace != nullptr) {
    line += "\",\"trace_id\":\"" + record.trace->trace_id_text() + "\",\"span_id\":\"" + record.trace->span_id_text();
  }
  return line + "\"}\n";
}

std::string journal_entry(const LogRecord& record, std::string_view identifier) {
  const auto shown = [](std::string_view text, LogLineForm form, std::size_t bytes_max) {
    std::string value;
    append(value, text, form, bytes_max);
    return value;
  };
  std::string entry;
  append_field(entry, "MESSAGE", shown(record.text, LogLineForm::lines, log_text_bytes_max));
  entry += std::string("PRIORITY=") + priority(record.level) + "\n";
  append_field(entry, "SYSLOG_IDENTIFIER", shown(identifier, LogLineForm::line, component_bytes_max));
  append_field(entry, "HAWSER_COMPONENT", shown(record.component, LogLineForm::line, component_bytes_max));
  if (record.trace != nullptr) {
    entry += "TRACE_ID=" + record.trace->trace_id_text() + "\nSPAN_ID=" + record.trace->span_id_text() + "\n";
  }
  return entry;
}

}  // namespace hawser
