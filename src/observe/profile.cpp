#include "observe/profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/decimal_text.h"
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
class ProfileMessage {
 public:
  ProfileMessage& number(unsigned field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  ProfileMessage& text(unsigned field, std::string_view value) {
    varint((std::uint64_t{field} << 3) | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProfileMessage& message(unsigned field, const ProfileMessage& value) { return text(field, value.bytes_); }
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
  std::uint64_t value = 0;
  std::map<std::string, Box> callees = {};
};

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

class Drawing {
 public:
  Drawing(std::uint64_t all, std::string_view unit) : all_(all), unit_(unit) {}

  void draw(const std::string& name, const Box& box, double x, double bottom) {
    const double size = width_of(box);
    if (size < box_width_min || bottom < row_height) return;
    const std::string at = " x=\"" + fixed_text(x, 1) + "\"";
    const double percent = 100 * static_cast<double>(box.value) / static_cast<double>(all_);
    out += "<g><title>" + markup(name) + ": " + value_text(box.value, unit_) + ", " + fixed_text(percent, 1) +
           " %</title><rect" + at + " y=\"" + fixed_text(bottom - row_height, 1) + "\" width=\"" + fixed_text(size, 1) +
           "\" height=\"16\" fill=\"" + colour_of(name) + "\"/>";
    const auto characters = static_cast<std::size_t>(size / character_width);
    if (characters >= 4) {
      const std::string shown = name.size() <= characters ? name : harmless(name, characters - 3);
      out += "<text x=\"" + fixed_text(x + 2, 1) + "\" y=\"" + fixed_text(bottom - 5, 1) + "\">" + markup(shown) +
             "</text>";
    }
    out += "</g>\n";
    double from = x;
    for (const auto& [callee, part] : box.callees) {
      draw(callee, part, from, bottom - row_height);
      from += width_of(part);
    }
  }

  std::string out = {};

 private:
  double width_of(const Box& box) const { return width * static_cast<double>(box.value) / static_cast<double>(all_); }

  const std::uint64_t all_;
  const std::string_view unit_;
};

std::uint64_t shown_value(const Profile& profile, const Profile::Stack& stack) {
  return profile.shown < stack.values.size() ? stack.values[profile.shown] : 0;
}

// The names from the outermost one: group, thread, functions.
std::vector<std::string> path_of(const Profile::Stack& stack) {
  std::vector<std::string> path;
  if (!stack.group.empty()) path.push_back(stack.group);
  if (!stack.thread.empty()) path.push_back(stack.thread);
  path.insert(path.end(), stack.frames.begin(), stack.frames.end());
  return path;
}

}  // namespace

std::string value_text(std::uint64_t value, std::string_view unit) {
  const auto number = static_cast<double>(value);
  if (unit == "nanoseconds") {
    return number >= 1e9 ? fixed_text(number / 1e9, 2) + " s" : fixed_text(number / 1e6, 2) + " ms";
  }
  if (unit != "bytes") return std::to_string(value) + " samples";
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t at = 0;
  double scaled = number;
  for (; scaled >= 1024 && at + 1 < units.size(); ++at) scaled /= 1024;
  return fixed_text(scaled, at == 0 ? 0 : 1) + ' ' + units[at];
}

std::string folded_text(const Profile& profile) {
  std::string text;
  for (const Profile::Stack& stack : profile.stacks) {
    const std::uint64_t value = shown_value(profile, stack);
    if (value == 0) continue;
    std::string line;
    for (const std::string& name : path_of(stack)) line += (line.empty() ? "" : ";") + folded_name(name);
    text += (line.empty() ? "[unknown]" : line) + " " + std::to_string(value) + "\n";
  }
  return text;
}

std::string pprof_bytes(const Profile& profile) {
  StringTable strings;
  const auto index = [&](std::string_view text) { return strings.index(std::string(text)); };
  const auto value_type = [&](const Profile::Kind& kind) {
    const std::uint64_t type = index(kind.type);
    return ProfileMessage().number(1, type).number(2, index(kind.unit));
  };
  ProfileMessage out;
  for (const Profile::Kind& kind : profile.kinds) out.message(1, value_type(kind));
  std::map<std::string, std::uint64_t> functions;  // Each is a location too.
  for (const Profile::Stack& stack : profile.stacks) {
    ProfileMessage sample;
    const auto add = [&](const std::string& name) {
      sample.number(1, functions.emplace(harmless(name, name_bytes_max), functions.size() + 1).first->second);
    };
    // The innermost first.
    for (auto frame = stack.frames.rbegin(); frame != stack.frames.rend(); ++frame) add(*frame);
    if (!stack.group.empty()) add(stack.group);
    for (const std::uint64_t value : stack.values) sample.number(2, std::min(value, profile_value_max));
    if (!stack.thread.empty()) {
      const std::uint64_t key = index("thread");
      sample.message(3, ProfileMessage().number(1, key).number(2, index(harmless(stack.thread))));
    }
    out.message(2, sample);
  }
  for (const auto& [name, id] : functions) {
    const std::uint64_t text = index(name);
    out.message(4, ProfileMessage().number(1, id).message(4, ProfileMessage().number(1, id)));
    out.message(5, ProfileMessage().number(1, id).number(2, text).number(3, text));
  }
  const ProfileMessage period = value_type(profile.period_kind);
  const std::uint64_t comment = index(harmless(profile.caption, name_bytes_max));
  const std::uint64_t standard = profile.kinds.empty() ? 0 : index(profile.kinds[profile.shown].type);
  for (const std::string& text : strings.texts()) out.text(6, text);
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(profile.begin.time_since_epoch()).count();
  out.number(9, static_cast<std::uint64_t>(since));
  out.number(10, static_cast<std::uint64_t>(profile.seconds * static_cast<double>(nanoseconds)));
  out.message(11, period).number(12, profile.period);
  if (!profile.caption.empty()) out.number(13, comment);
  out.number(14, standard);
  return out.bytes();
}

std::string flame_svg(const Profile& profile) {
  Box root;
  for (const Profile::Stack& stack : profile.stacks) {
    const std::uint64_t value = shown_value(profile, stack);
    if (value == 0) continue;
    root.value = profile_sum(root.value, value);
    Box* at = &root;
    for (const std::string& name : path_of(stack)) {
      at = &at->callees[name];
      at->value = profile_sum(at->value, value);
    }
  }
  const std::string_view unit = profile.kinds.empty() ? std::string_view("count") : profile.kinds[profile.shown].unit;
  const std::size_t rows = std::min(depth_of(root) + 1, rows_max_of_graph);
  const double height = row_height * static_cast<double>(rows + 2);
  Drawing drawing(root.value, unit);
  drawing.out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 " + fixed_text(height, 1) +
                "\" font-family=\"monospace\" font-size=\"11\">\n<rect width=\"1200\" height=\"" +
                fixed_text(height, 1) + "\" fill=\"#ffffff\"/>\n<text x=\"4\" y=\"13\">" +
                value_text(root.value, unit) + " " + markup(profile.caption) + "</text>\n";
  if (root.value != 0) drawing.draw("all", root, 0, height);
  return drawing.out + "</svg>\n";
}

}  // namespace hawser::observe
