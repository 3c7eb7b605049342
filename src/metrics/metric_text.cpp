#include "metrics/metric_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace hawser {

std::string_view content_type(MetricFormat format) noexcept {
  return format == MetricFormat::openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                             : "text/plain; version=0.0.4; charset=utf-8";
}

namespace metrics {
namespace {

constexpr std::string_view total = "_total";
constexpr double nanoseconds_per_second = 1e9;

bool is_letter(char c) noexcept { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool is_name(std::string_view name) noexcept {
  return !name.empty() && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

void append_escaped(std::string& text, std::string_view value, bool quotes) {
  for (const char c : value) {
    switch (c) {
      case '\\': text += "\\\\"; break;
      case '\n': text += "\\n"; break;
      case '"': text += quotes ? "\\\"" : "\""; break;
      default: text += c;
    }
  }
}

void append_number(std::string& text, double value) {
  if (std::isnan(value)) {
    text += "NaN";
  } else if (std::isinf(value)) {
    text += value > 0 ? "+Inf" : "-Inf";
  } else {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text.append(digits.data(), end);
  }
}

// Appends the labels in braces; `le` is the additional label of a bucket, or empty.
void append_labels(std::string& text, const MetricLabels& labels, std::string_view le) {
  if (labels.empty() && le.empty()) return;
  char separator = '{';
  for (const auto& [name, value] : labels) {
    text += separator;
    text += name;
    text += "=\"";
    append_escaped(text, value, true);
    text += '"';
    separator = ',';
  }
  if (!le.empty()) {
    text += separator;
    text += "le=\"";
    text += le;
    text += '"';
  }
  text += '}';
}

void append_line(std::string& text, std::string_view name, std::string_view suffix, const MetricLabels& labels,
                 std::string_view le, double value) {
  text += name;
  text += suffix;
  append_labels(text, labels, le);
  text += ' ';
  append_number(text, value);
}

// Durations are recorded in nanoseconds and exported in seconds. Dividing gives the shortest decimal; multiplying by
// the inexact 1e-9 does not.
double divisor_of(const MetricInfo& info) noexcept {
  return info.name.ends_with("_seconds") ? nanoseconds_per_second : 1;
}

// Powers of two that bound the exported buckets; the other buckets are for percentiles within the process. 1 us to 69 s
// for durations, 1 to 2^40 for others.
std::vector<unsigned> powers_of(double divisor) {
  std::vector<unsigned> powers;
  if (divisor == 1) powers = {0, 4, 8};
  for (unsigned power = divisor == 1 ? 12 : 10; power <= (divisor == 1 ? 40u : 36u); ++power) powers.push_back(power);
  return powers;
}

// Appends an exemplar whose value has `from` to `to` significant bits.
void append_exemplar(std::string& text, const Sample& sample, std::size_t from, std::size_t to, double divisor) {
  const auto found = sample.exemplars.lower_bound(from);
  if (found == sample.exemplars.end() || found->first > to) return;
  text += " # {trace_id=\"";
  append_escaped(text, found->second.trace_id, true);
  text += "\"} ";
  append_number(text, static_cast<double>(found->second.value) / divisor);
  text += ' ';
  append_number(text, found->second.unix_seconds);
}

void append_histogram(std::string& text, const Family& family, const Sample& sample, MetricFormat format) {
  using Buckets = HistogramSnapshot::Buckets;
  const HistogramSnapshot& histogram = *sample.histogram;
  const double divisor = divisor_of(family.info);
  const bool open = format == MetricFormat::openmetrics;
  std::uint64_t below = 0;
  std::size_t index = 0;
  unsigned previous = 0;
  for (const unsigned power : powers_of(divisor)) {
    // 2^power - 1 is the greatest integer of the bucket, so the bound is exact.
    const std::uint64_t bound = (std::uint64_t{1} << power) - 1;
    while (index < Buckets::buckets && Buckets::last_of(index) <= bound) below += histogram.counts[index++];
    std::string le;
    append_number(le, static_cast<double>(bound) / divisor);
    if (open && le.find_first_of(".e") == std::string::npos) le += ".0";
    append_line(text, family.info.name, "_bucket", sample.labels, le, static_cast<double>(below));
    if (open) append_exemplar(text, sample, previous == 0 ? 0 : previous + 1, power, divisor);
    text += '\n';
    previous = power;
  }
  append_line(text, family.info.name, "_bucket", sample.labels, "+Inf", static_cast<double>(histogram.count));
  if (open) append_exemplar(text, sample, previous + 1, 64, divisor);
  text += '\n';
  append_line(text, family.info.name, "_sum", sample.labels, "", static_cast<double>(histogram.sum) / divisor);
  text += '\n';
  append_line(text, family.info.name, "_count", sample.labels, "", static_cast<double>(histogram.count));
  text += '\n';
}

}  // namespace

std::string_view to_string(SeriesKind kind) noexcept {
  switch (kind) {
    case SeriesKind::counter: return "counter";
    case SeriesKind::gauge: return "gauge";
    case SeriesKind::histogram: return "histogram";
  }
  return "unknown";
}

std::string invalid(const MetricInfo& info) {
  if (!is_name(info.name)) {
    return "hawser: metric name '" + info.name + "' must begin with a letter and have letters, digits and '_' only";
  }
  if (info.name.ends_with(total)) {
    return "hawser: metric name '" + info.name + "' must not end with '_total': counters are exported with that suffix";
  }
  if (!info.unit.empty() && !info.name.ends_with("_" + info.unit)) {
    return "hawser: metric name '" + info.name + "' must end with its unit '_" + info.unit + "'";
  }
  for (const std::string_view reserved : {"_bucket", "_count", "_sum", "_created", "_info"}) {
    if (info.name.ends_with(reserved)) {
      return "hawser: metric name '" + info.name + "' ends with '" + std::string(reserved) +
             "', which the text formats use themselves";
    }
  }
  return {};
}

std::string invalid(const MetricLabels& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string& name = labels[i].first;
    if (!is_name(name) || name.starts_with("__") || name == "le") {
      return "hawser: label name '" + name +
             "' must begin with a letter, have letters, digits and '_' only, and not be 'le'";
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (labels[j].first == name) return "hawser: label '" + name + "' is given twice";
    }
  }
  return {};
}

std::string valid_text(std::string_view text, std::size_t bytes) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t length = utf8_character_bytes(text);
    if (kept.size() + std::max<std::size_t>(length, 1) > bytes) break;
    if (length == 0) {
      kept += '?';
    } else {
      kept += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return kept;
}

MetricLabels bounded(const MetricLabels& labels, std::size_t bytes) {
  MetricLabels result;
  result.reserve(labels.size());
  for (const auto& [name, value] : labels) result.emplace_back(name, valid_text(value, bytes));
  return result;
}

void append(std::string& text, const Family& family, MetricFormat format) {
  const bool open = format == MetricFormat::openmetrics;
  const std::string_view suffix = family.kind == SeriesKind::counter ? total : "";
  const auto describe = [&](std::string_view what) {
    text += "# ";
    text += what;
    text += ' ';
    text += family.info.name;
    if (!open) text += suffix;
    text += ' ';
  };
  describe("HELP");
  append_escaped(text, family.info.help, open);
  text += '\n';
  describe("TYPE");
  text += to_string(family.kind);
  text += '\n';
  if (open && !family.info.unit.empty()) {
    describe("UNIT");
    text += family.info.unit;
    text += '\n';
  }
  for (const Sample& sample : family.samples) {
    if (family.kind == SeriesKind::histogram) {
      append_histogram(text, family, sample, format);
    } else {
      append_line(text, family.info.name, suffix, sample.labels, "", sample.value);
      text += '\n';
    }
  }
}

}  // namespace metrics
}  // namespace hawser
