#include "observe/profile.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string_view>

#include "observe/document.h"

namespace hawser::observe {
namespace {

constexpr std::size_t name_bytes_max = 512;
constexpr std::uint64_t nanoseconds = 1'000'000'000;

// The name without the characters that separate names in the folded format.
std::string folded_name(std::string_view name) {
  std::string text = harmless(name, name_bytes_max);
  std::ranges::replace(text, ';', ':');
  return text;
}

// ---- pprof ----

// Writes fields of Protocol Buffers.
class Message {
 public:
  Message& number(unsigned field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Message& text(unsigned field, std::string_view value) {
    varint((std::uint64_t{field} << 3) | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(unsigned field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

class StringTable {
 public:
  StringTable() { index(""); }
  std::uint64_t index(const std::string& text) {
    const auto [at, added] = known_.emplace(text, texts_.size());
    if (added) texts_.push_back(text);
    return at->second;
  }
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  std::map<std::string, std::uint64_t> known_;
  std::vector<std::string> texts_;
};

// ---- The flame graph ----

constexpr double width = 1200;
constexpr double row_height = 17;
constexpr double character_width = 6.7;
constexpr double box_width_min = 0.4;
constexpr std::size_t rows_max_of_graph = 80;

struct Box {
  std::uint64_t samples = 0;
  std::map<std::string, Box> callees = {};
};

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : harmless(text, name_bytes_max)) {
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

std::string decimal_text(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::size_t depth_of(const Box& box) {
  std::size_t most = 0;
  for (const auto& [name, callee] : box.callees) most = std::max(most, 1 + depth_of(callee));
  return most;
}

// A colour of its own for each name, between yellow and red.
std::string colour_of(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return "rgb(" + std::to_string(205 + hash % 50) + "," + std::to_string(100 + (hash >> 8) % 120) + "," +
         std::to_string(60 + (hash >> 16) % 40) + ")";
}

void draw(std::string& out, const std::string& name, const Box& box, double x, double bottom, std::uint64_t all) {
  const double size = width * static_cast<double>(box.samples) / static_cast<double>(all);
  if (size < box_width_min || bottom < row_height) return;
  const std::string at = " x=\"" + decimal_text(x) + "\"";
  const double percent = 100 * static_cast<double>(box.samples) / static_cast<double>(all);
  out += "<g><title>" + xml(name) + ": " + std::to_string(box.samples) + " samples, " + decimal_text(percent) +
         " %</title><rect" + at + " y=\"" + decimal_text(bottom - row_height) + "\" width=\"" + decimal_text(size) +
         "\" height=\"16\" fill=\"" + colour_of(name) + "\"/>";
  const auto characters = static_cast<std::size_t>(size / character_width);
  if (characters >= 4) {
    const std::string shown = name.size() <= characters ? name : harmless(name, characters - 3);
    out += "<text x=\"" + decimal_text(x + 2) + "\" y=\"" + decimal_text(bottom - 5) + "\">" + xml(shown) + "</text>";
  }
  out += "</g>\n";
  double from = x;
  for (const auto& [callee, part] : box.callees) {
    draw(out, callee, part, from, bottom - row_height, all);
    from += width * static_cast<double>(part.samples) / static_cast<double>(all);
  }
}

}  // namespace

std::string folded_text(const Profile& profile) {
  std::string text;
  for (const Profile::Stack& stack : profile.stacks) {
    text += folded_name(stack.thread);
    for (const std::string& frame : stack.frames) text += ";" + folded_name(frame);
    text += " " + std::to_string(stack.samples) + "\n";
  }
  return text;
}

std::string pprof_bytes(const Profile& profile) {
  StringTable strings;
  const auto value_type = [&](const char* type, const char* unit) {
    return Message().number(1, strings.index(type)).number(2, strings.index(unit));
  };
  const std::uint64_t period = nanoseconds / std::max(profile.hertz, 1U);
  Message out;
  out.message(1, value_type("samples", "count")).message(1, value_type("cpu", "nanoseconds"));
  std::map<std::string, std::uint64_t> functions;  // Each is a location too.
  for (const Profile::Stack& stack : profile.stacks) {
    Message sample;
    // The innermost first.
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) {
      sample.number(1, functions.emplace(harmless(*frame, name_bytes_max), functions.size() + 1).first->second);
    }
    sample.number(2, stack.samples).number(2, stack.samples * period);
    sample.message(3, Message().number(1, strings.index("thread")).number(2, strings.index(harmless(stack.thread))));
    out.message(2, sample);
  }
  for (const auto& [name, id] : functions) {
    out.message(4, Message().number(1, id).message(4, Message().number(1, id)));
    out.message(5, Message().number(1, id).number(2, strings.index(name)).number(3, strings.index(name)));
  }
  const Message cpu = value_type("cpu", "nanoseconds");
  for (const std::string& text : strings.texts()) out.text(6, text);
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(profile.begin.time_since_epoch()).count();
  out.number(9, static_cast<std::uint64_t>(since));
  out.number(10, static_cast<std::uint64_t>(profile.seconds * static_cast<double>(nanoseconds)));
  out.message(11, cpu).number(12, period);
  return out.bytes();
}

std::string flame_svg(const Profile& profile) {
  Box root;
  for (const Profile::Stack& stack : profile.stacks) {
    root.samples += stack.samples;
    Box* at = &root.callees[stack.thread];
    at->samples += stack.samples;
    for (const std::string& frame : stack.frames) {
      at = &at->callees[frame];
      at->samples += stack.samples;
    }
  }
  const std::size_t rows = std::min(depth_of(root) + 1, rows_max_of_graph);
  const double height = row_height * static_cast<double>(rows + 2);
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 " + decimal_text(height) +
                    "\" font-family=\"monospace\" font-size=\"11\">\n<rect width=\"1200\" height=\"" +
                    decimal_text(height) + "\" fill=\"#ffffff\"/>\n<text x=\"4\" y=\"13\">" +
                    std::to_string(root.samples) + " samples of processor time in " + decimal_text(profile.seconds) +
                    " s, " + std::to_string(profile.hertz) + " in a second of each thread" +
                    (profile.lost == 0 ? std::string() : "; " + std::to_string(profile.lost) + " were lost") +
                    "</text>\n";
  if (root.samples != 0) draw(out, "all", root, 0, height, root.samples);
  return out + "</svg>\n";
}

}  // namespace hawser::observe
