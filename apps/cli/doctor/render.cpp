#include "cli/doctor/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace hawser::cli::doctor {
namespace {

struct Mark {
  std::string_view sign;
  std::string_view colour;
};

Mark mark_of(Severity severity) {
  switch (severity) {
    case Severity::good: return {"✓", "\x1b[32m"};
    case Severity::note: return {"·", "\x1b[36m"};
    case Severity::warning: return {"!", "\x1b[33m"};
    case Severity::problem: return {"✗", "\x1b[31m"};
  }
  return {"?", ""};
}

class Painter {
 public:
  explicit Painter(bool colour) : colour_(colour) {}
  std::string paint(std::string_view escape, std::string_view text) const {
    return colour_ ? fmt::format("{}{}\x1b[0m", escape, text) : std::string(text);
  }
  std::string bold(std::string_view text) const { return paint("\x1b[1m", text); }
  std::string faint(std::string_view text) const { return paint("\x1b[2m", text); }

 private:
  bool colour_;
};

// Wraps `text` at `columns`. Lines after the first begin with `indent` blanks.
std::string wrap(std::string_view text, std::size_t indent, std::size_t columns) {
  const std::size_t width = columns > indent + 20 ? columns - indent : 20;
  std::string wrapped;
  std::size_t used = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (used > 0 && used + 1 + word.size() > width) {
      wrapped += "\n" + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      wrapped += ' ';
      ++used;
    }
    wrapped += word;
    used += word.size();
  }
  return wrapped;
}

std::string summary(const DoctorReport& report) {
  std::size_t warnings = 0;
  std::size_t problems = 0;
  for (const Section& section : report.sections) {
    for (const Finding& finding : section.findings) {
      warnings += finding.severity == Severity::warning;
      problems += finding.severity == Severity::problem;
    }
  }
  if (warnings + problems == 0) return "Nothing is wrong.";
  const auto count = [](std::size_t number, std::string_view noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
  };
  return fmt::format("{}, {}.", count(problems, "problem"), count(warnings, "warning"));
}

}  // namespace

std::string render(const DoctorReport& report, const RenderOptions& options) {
  const Painter painter(options.colour);
  constexpr std::size_t indent = 4;
  std::string page;
  for (const Section& section : report.sections) {
    page += painter.bold(section.title);
    if (section.name != "machine") {
      page += section.usable ? painter.paint("\x1b[32m", "  usable") : painter.faint("  not usable here");
    }
    page += '\n';
    for (const Finding& finding : section.findings) {
      const Mark mark = mark_of(finding.severity);
      const std::string text = finding.subject.empty() ? finding.text : finding.subject + ": " + finding.text;
      page += fmt::format("  {} {}\n", painter.paint(mark.colour, mark.sign), wrap(text, indent, options.columns));
      if (!finding.remedy.empty()) {
        page +=
            std::string(indent, ' ') + painter.faint("→ " + wrap(finding.remedy, indent + 2, options.columns)) + '\n';
      }
    }
    page += '\n';
  }
  const Severity severity = worst(report);
  page += painter.paint(severity > Severity::note ? mark_of(severity).colour : "\x1b[32m", summary(report)) + '\n';
  return page;
}

std::string to_json(const DoctorReport& report) {
  nlohmann::ordered_json sections = nlohmann::ordered_json::array();
  for (const Section& section : report.sections) {
    nlohmann::ordered_json findings = nlohmann::ordered_json::array();
    for (const Finding& finding : section.findings) {
      nlohmann::ordered_json figures = nlohmann::ordered_json::object();
      for (const auto& [name, value] : finding.figures) figures[name] = value;
      findings.push_back({{"id", finding.id},
                          {"subject", finding.subject},
                          {"severity", to_string(finding.severity)},
                          {"text", finding.text},
                          {"remedy", finding.remedy},
                          {"figures", std::move(figures)}});
    }
    sections.push_back({{"name", section.name}, {"usable", section.usable}, {"findings", std::move(findings)}});
  }
  const nlohmann::ordered_json page = {
      {"version", 1}, {"worst", to_string(worst(report))}, {"sections", std::move(sections)}};
  return page.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace hawser::cli::doctor
