#include <algorithm>

#include "base/decimal_text.h"
#include "observe/document.h"
#include "observe/style.h"

namespace hawser::observe {
namespace {

void append_trend(std::string& out, const PageCell& cell) {
  const double top = std::max(*std::ranges::max_element(cell.trend), 1e-9);
  out += R"(<svg class="trend" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label="trend: )";
  out += markup(cell.text);
  out += R"("><title>)";
  out += markup(cell.text);
  out += R"(</title><polyline points=")";
  const double step = 100.0 / static_cast<double>(std::max<std::size_t>(cell.trend.size(), 2) - 1);
  for (std::size_t i = 0; i < cell.trend.size(); ++i) {
    out += fixed_text(static_cast<double>(i) * step, 1) + ',';
    out += fixed_text(19 - 18 * cell.trend[i] / top, 1) + ' ';
  }
  out += R"("/></svg>)";
}

void append_cell(std::string& out, const PageCell& cell, bool number, bool heading, bool asks_token) {
  out += heading ? "<th scope=\"row\"" : "<td";
  if (number || cell.alarm) {
    out += " class=\"";
    out += number ? (cell.alarm ? "n alarm" : "n") : "alarm";
    out += '"';
  }
  out += '>';
  if (!cell.trend.empty()) {
    append_trend(out, cell);
  } else if (cell.button) {
    out += "<form method=\"post\" action=\"" + markup(cell.link) + "\">";
    if (cell.field) {
      out += "<input name=\"value\" aria-label=\"new value\" autocomplete=\"off\" size=\"12\" value=\"" +
             markup(*cell.field) + "\"> ";
    }
    if (asks_token) {
      out +=
          "<input type=\"password\" name=\"token\" aria-label=\"token\" placeholder=\"token\" size=\"8\" "
          "autocomplete=\"current-password\"> ";
    }
    out += "<button>" + markup(cell.label.empty() ? cell.text : cell.label) + "</button></form>";
  } else if (!cell.link.empty()) {
    out += "<a href=\"" + markup(cell.link) + "\">" + markup(cell.text) + "</a>";
  } else {
    out += markup(cell.text);
  }
  out += heading ? "</th>" : "</td>";
}

void append_table(std::string& out, const PageTable& table, bool asks_token) {
  if (!table.title.empty()) out += "<h2>" + markup(table.title) + "</h2>\n";
  if (table.rows.empty()) {
    out += "<p class=\"note\">none</p>\n";
  } else {
    out += "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" +
           markup(table.title.empty() ? table.key : table.title) + "\"><table>\n";
    if (!table.facts) {
      out += "<thead><tr>";
      for (const Column& column : table.columns) {
        out += column.number ? "<th scope=\"col\" class=\"n\">" : "<th scope=\"col\">";
        out += markup(column.title);
        out += "</th>";
      }
      out += "</tr></thead>\n";
    }
    out += "<tbody>\n";
    for (const std::vector<PageCell>& row : table.rows) {
      out += "<tr>";
      for (std::size_t i = 0; i < row.size() && i < table.columns.size(); ++i) {
        append_cell(out, row[i], table.columns[i].number && !table.facts, table.facts && i == 0, asks_token);
      }
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }
  if (!table.note.empty()) out += "<p class=\"note\">" + markup(table.note) + "</p>\n";
  if (!table.next.empty()) out += "<p><a rel=\"next\" href=\"" + markup(table.next) + "\">Next</a></p>\n";
}

}  // namespace

std::string render_html(const Document& document, std::string_view program, std::string_view nonce) {
  std::string out = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" + markup(document.title) +
         (program.empty() ? "" : " - " + markup(program)) + "</title>\n<style nonce=\"" + markup(nonce) + "\">";
  out += style;
  out += "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">To the content</a>\n<header><strong>" +
         markup(program.empty() ? "hawser" : program) + "</strong>\n<nav aria-label=\"Pages\">";
  for (const PageName& page : page_names()) {
    out += "<a href=\"" + std::string(page.path) + "\"" + (page.path == document.path ? " aria-current=\"page\"" : "") +
           ">" + std::string(page.title) + "</a>";
  }
  out += "</nav></header>\n<main id=\"main\">\n<h1>" + markup(document.title) + "</h1>\n";
  if (!document.figure.empty()) out += "<div class=\"graph\">" + document.figure + "</div>\n";
  for (const PageTable& table : document.tables) append_table(out, table, document.asks_token);
  const std::string query = document.query.empty() ? std::string() : "&amp;" + markup(document.query);
  out += "</main>\n<footer>" + markup(document.formats_title);
  for (std::size_t i = 0; i < document.formats.size(); ++i) {
    const std::string& format = document.formats[i];
    out += i == 0 ? " " : i + 1 == document.formats.size() ? " or " : ", ";
    out +=
        "<a href=\"?format=" + markup(format) + query + "\">" + (format == "json" ? "JSON" : markup(format)) + "</a>";
  }
  out += ".</footer>\n";
  if (document.updates) {
    out += "<script nonce=\"" + markup(nonce) + "\">";
    out += script;
    out += "</script>\n";
  }
  return out + "</body>\n</html>\n";
}

}  // namespace hawser::observe
