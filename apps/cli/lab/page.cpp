#include "cli/lab/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/lab/recommend.h"
#include "lab/model/study.h"
#include "lab/steps/ladder.h"
#include "report/line_chart.h"
#include "report/page_style.h"

namespace hawser::cli::lab {

using hawser::report::escaped;
using hawser::report::legend_html;
using hawser::report::Quantity;
using hawser::report::quantity_text;

namespace {

std::string badge_of(const LabFile& file) { return file.simulated ? " <span class=\"badge\">simulated</span>" : ""; }

std::string tile(const std::string& figure, const std::string& unit, const std::string& text) {
  return fmt::format("<div class=\"panel tile\"><b>{} <small>{}</small></b><span>{}</span></div>\n", figure, unit,
                     escaped(text));
}

std::string tiles_of(const std::vector<LabFile>& files) {
  const LadderRow* most_bits = nullptr;
  const StudyRow* most_messages = nullptr;
  const StudyRow* fastest = nullptr;
  std::uint64_t not_ready_with = 0;
  std::uint64_t not_ready_without = 0;
  bool streams = false;
  for (const LabFile& file : files) {
    for (const LadderRow& row : file.ladder) {
      if (!most_bits || row.gbit_per_s.mean > most_bits->gbit_per_s.mean) most_bits = &row;
    }
    for (const StudyRow& row : file.study) {
      if (row.latency) {
        if (!fastest || row.value.mean < fastest->value.mean) fastest = &row;
        continue;
      }
      streams = true;
      (row.credits ? not_ready_with : not_ready_without) += row.receiver_not_ready;
      if (!most_messages || row.value.mean > most_messages->value.mean) most_messages = &row;
    }
  }
  std::string text;
  if (most_bits != nullptr) {
    text += tile(quantity_text(Quantity::gbit_per_s, most_bits->gbit_per_s.mean), "Gb/s",
                 fmt::format("most of the ladder: {}, {} B", most_bits->name, most_bits->size_bytes));
  }
  if (most_messages != nullptr) {
    text += tile(quantity_text(Quantity::per_second, most_messages->value.mean), "messages/s",
                 fmt::format("most: ({}) {}, {}", most_messages->experiment, most_messages->series, most_messages->x));
  }
  if (fastest != nullptr) {
    text += tile(quantity_text(Quantity::microseconds, fastest->value.mean), "",
                 fmt::format("half round trip of {} B", fastest->size_bytes));
  }
  if (streams) {
    text += tile(fmt::format("{}", not_ready_with), "RNR",
                 fmt::format("receiver not ready with credits; {} times without", not_ready_without));
  }
  return text.empty() ? text : "<div class=\"tiles\">\n" + text + "</div>\n";
}

// Describes the gain of a row over the previous one, or the reason if there is none.
std::string gain_text(const LadderRow& row, const LadderRow* before, double best, std::string_view otherwise) {
  if (before == nullptr || row.size_bytes != before->size_bytes) return "";
  constexpr double at_limit = 0.97;
  const double gain = row.gbit_per_s.mean / before->gbit_per_s.mean;
  const double noise = 2 * (row.gbit_per_s.standard_deviation / row.gbit_per_s.mean +
                            before->gbit_per_s.standard_deviation / before->gbit_per_s.mean);
  const double least = std::max(0.02, noise);
  if (gain > 1 + least) return fmt::format("\u00d7{:.2f}", gain);
  if (gain >= 1 - least && before->gbit_per_s.mean >= at_limit * best) {
    return fmt::format("\u00d7{:.2f}: at the limit already", gain);
  }
  return fmt::format("\u00d7{:.2f}: {}", gain, otherwise);
}

std::string ladder_section(const LabFile& file) {
  if (file.ladder.empty()) return {};
  std::string text = fmt::format(
      "<section>\n<h2>The ladder{}</h2>\n<p>{}: from one send at a time to the limit, each step with its repetitions. "
      "All that arrived was compared with what was sent.</p>\n",
      badge_of(file), escaped(file.device));
  for (const Figure& figure : ladder_figures(file)) {
    text += legend_html(figure.legend) + "<div class=\"panel\">" + figure.svg + "</div>\n";
  }
  const bool tools = std::ranges::any_of(file.ladder, [](const LadderRow& row) { return row.perftest_gbit_per_s > 0; });
  text += fmt::format(
      "<div class=\"panel scroll\"><table><thead><tr><th>Step</th><th class=\"text wide\">What changes, and why</th>"
      "<th class=\"text\">Variant</th><th>Size (B)</th><th>Depth</th><th>Mean Gb/s</th><th>Median</th><th>Std dev</th>"
      "<th class=\"text medium\">Gain</th>{}</tr></thead>\n<tbody>\n",
      tools ? "<th>perftest</th><th>Ratio</th>" : "");
  const LadderRow* before = nullptr;
  for (const LadderRow& row : file.ladder) {
    const auto step = std::ranges::find(hawser::lab::ladder(), row.step, &hawser::lab::LadderStep::number);
    const bool first = before == nullptr || before->step != row.step;
    const bool known = step != hawser::lab::ladder().end();
    text += fmt::format(
        "<tr{}><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td>",
        first ? " class=\"first\"" : "", first ? fmt::format("{}", row.step) : "",
        first && known ? fmt::format("<b>{}.</b> {} {}", escaped(step->name), escaped(step->change), escaped(step->why))
                       : "",
        escaped(row.label), row.size_bytes, row.depth);
    double best = 0;
    for (const LadderRow& other : file.ladder) {
      if (other.size_bytes == row.size_bytes) best = std::max(best, other.gbit_per_s.mean);
    }
    std::string gain = gain_text(row, before, best, known ? step->otherwise : "");
    if (!row.note.empty()) gain += (gain.empty() ? "" : "; ") + escaped(row.note);
    text +=
        fmt::format("<td>{:.3f}</td><td>{:.3f}</td><td>{:.1f} %</td><td class=\"text\">{}</td>", row.gbit_per_s.mean,
                    row.gbit_per_s.median,
                    row.gbit_per_s.mean > 0 ? 100 * row.gbit_per_s.standard_deviation / row.gbit_per_s.mean : 0, gain);
    if (row.perftest_gbit_per_s > 0) {
      text += fmt::format("<td>{:.3f}</td><td>{:.2f}</td>", row.perftest_gbit_per_s,
                          row.gbit_per_s.median / row.perftest_gbit_per_s);
    }
    text += "</tr>\n";
    before = &row;
  }
  return text + "</tbody></table></div>\n</section>\n";
}

std::string study_section(const LabFile& file) {
  if (file.study.empty()) return {};
  std::string text = fmt::format(
      "<section>\n<h2>Send/Receive, (a) to (h){}</h2>\n<p>{}. Senders wait for credits unless a figure says otherwise. "
      "Vertical lines are standard deviations; the tooltip of a point names its bottleneck.</p>\n<div "
      "class=\"plots\">\n",
      badge_of(file), escaped(file.device));
  for (const hawser::lab::Experiment& one : hawser::lab::experiments()) {
    for (const Figure& figure : study_figures(file, one.letter)) {
      text += fmt::format("<div class=\"panel{}\">{}{}</div>\n", figure.wide ? " wide" : "", legend_html(figure.legend),
                          figure.svg);
    }
  }
  return text + "</div>\n</section>\n";
}

std::string model_section(const LabFile& file) {
  if (!file.model) return {};
  const FittedModel& fitted = *file.model;
  std::string text = fmt::format(
      "<section>\n<h2>The model{}</h2>\n<p>Fitted by least squares to (a) to (e); root mean square of the residuals "
      "{:.1f} %. A field that is only bounded never sets the pace in these points.</p>\n<div class=\"panel scroll\">"
      "<table><thead><tr><th class=\"text\">Symbol</th><th>Value</th><th>Standard error</th></tr></thead><tbody>\n",
      badge_of(file), 100 * fitted.rms_relative);
  for (std::size_t i = 0; i < hawser::lab::model_fields.size(); ++i) {
    const auto& [name, unit, field] = hawser::lab::model_fields[i];
    text +=
        fmt::format("<tr><td class=\"text\">{}</td><td>{:.4g} {}</td><td>{}</td></tr>\n", name, fitted.model.*field,
                    unit, fitted.determined[i] ? fmt::format("{:.1f} %", 100 * fitted.standard_error[i]) : "bounded");
  }
  text +=
      "</tbody></table></div>\n<h3>Measured, predicted, and what sets the pace</h3>\n<div class=\"panel "
      "scroll\"><table>"
      "<thead><tr><th>Experiment</th><th class=\"text\">Series</th><th>x</th><th>Measured</th><th>Std dev</th>"
      "<th>Predicted</th><th>Residual</th><th class=\"text\">Bottleneck</th><th>RNR</th><th>to ib_send_bw</th></tr>"
      "</thead><tbody>\n";
  char last = 0;
  for (const StudyRow& row : file.study) {
    const auto quantity = row.latency ? Quantity::microseconds : Quantity::per_second;
    const bool predicted = row.predicted > 0;
    const double residual = predicted ? (row.predicted - row.value.mean) / row.value.mean : 0;
    text += fmt::format(
        "<tr{}><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{:.1f} %</td><td>{}</td><td>{}</td>"
        "<td class=\"text\">{}</td><td>{}</td><td>{}</td></tr>\n",
        row.experiment != last ? " class=\"first\"" : "", row.experiment, escaped(row.series), row.x,
        quantity_text(quantity, row.value.mean), 100 * row.value.standard_deviation / row.value.mean,
        predicted ? quantity_text(quantity, row.predicted) : "",
        predicted ? fmt::format("{:+.0f} %", 100 * residual) : "", row.bottleneck,
        row.receiver_not_ready > 0 ? fmt::format("{}", row.receiver_not_ready) : "",
        row.perftest > 0 ? fmt::format("{:.2f}", row.value.median / row.perftest) : "");
    last = row.experiment;
  }
  return text + "</tbody></table></div>\n</section>\n";
}

std::string recommendation_section(const std::vector<LabFile>& files) {
  const std::vector<Recommendation> all = recommend(files);
  if (all.empty()) return {};
  std::string text =
      "<section>\n<h2>Recommended RdmaOptions</h2>\n<p>What these figures say for the transport on this device; "
      "measure your own calls before keeping it.</p>\n<div class=\"panel scroll\"><table><thead><tr><th class=\"text\">"
      "Option</th><th class=\"text\">Value</th><th class=\"text\">Because</th></tr></thead><tbody>\n";
  for (const Recommendation& one : all) {
    text += fmt::format(
        "<tr><td class=\"text\"><code>{}</code></td><td class=\"text\"><code>{}</code></td>"
        "<td class=\"text\">{}</td></tr>\n",
        one.option, one.value, escaped(one.reason));
  }
  return text + "</tbody></table></div>\n</section>\n";
}

std::string meta_section(const std::vector<LabFile>& files) {
  std::string text = "<section>\n<h2>Where the figures come from</h2>\n";
  for (const LabFile& file : files) {
    text += fmt::format("<h3>{}{}</h3>\n<div class=\"panel\"><dl>\n", escaped(file.device), badge_of(file));
    for (const auto& [key, value] : file.meta) {
      text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(key), escaped(value));
    }
    text += "</dl></div>\n";
  }
  return text + "</section>\n";
}

}  // namespace

std::vector<Figure> figures_of(const std::vector<LabFile>& files) {
  std::vector<Figure> all;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto take = [&](std::vector<Figure> figures) {
      for (Figure& figure : figures) {
        if (files.size() > 1) figure.name += fmt::format("-{}", i + 1);
        all.push_back(std::move(figure));
      }
    };
    take(ladder_figures(files[i]));
    for (const hawser::lab::Experiment& one : hawser::lab::experiments()) take(study_figures(files[i], one.letter));
  }
  return all;
}

std::string page_of(const std::vector<LabFile>& files) {
  const bool simulated = std::ranges::any_of(files, &LabFile::simulated);
  std::string text =
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><title>Hawser verbs "
      "lab</title>\n<style>";
  text += hawser::report::page_style();
  text += "</style></head><body><main>\n<h1>Verbs lab</h1>\n";
  if (simulated) {
    text +=
        "<p><span class=\"badge\">simulated</span> Figures with this mark come from a model of a device in virtual "
        "time, "
        "not from a device.</p>\n";
  }
  text += tiles_of(files);
  for (const LabFile& file : files) text += ladder_section(file);
  for (const LabFile& file : files) text += study_section(file);
  text += recommendation_section(files);
  for (const LabFile& file : files) text += model_section(file);
  return text + meta_section(files) + "</main></body></html>\n";
}

}  // namespace hawser::cli::lab
