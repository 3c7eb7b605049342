#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reference/reference.h"

namespace hawser::cli {
namespace {

// Text for troff: a backslash, and a point or an apostrophe at the beginning of a line, are commands there.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c == ' ' ? '-' : c >= 'a' && c <= 'z' ? c - 32 : c; });
  return text;
}

std::string option_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!text.empty() && text.back() != '.') text += '.';
  const std::vector<std::string> values = values_of(option);
  if (!values.empty()) text += fmt::format(" One of: {}.", fmt::join(values, ", "));
  if (!option.get_default_str().empty()) text += " Default: " + option.get_default_str() + ".";
  return text;
}

}  // namespace

std::string man_page(const CLI::App& command, const std::string& name) {
  std::string page = fmt::format(".TH {} 1 \"\" \"hawser {}\"\n", upper(name), HAWSER_VERSION);
  std::string page_name = name;
  std::ranges::replace(page_name, ' ', '-');
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(page_name), roff(command.get_description()));
  page += ".SH SYNOPSIS\n.B " + roff(name) + "\n";
  std::string arguments;
  std::string options;
  for (const CLI::Option* option : command.get_options()) {
    const std::string shown = option->get_positional() ? option->get_name(true) : option->get_name(false, true);
    const std::string entry = fmt::format(".TP\n.B {}\n{}\n", roff(shown), roff(option_text(*option)));
    if (option->get_positional()) {
      page += roff(option->get_required() ? shown : "[" + shown + "]") + "\n";
      arguments += entry;
    } else {
      options += entry;
    }
  }
  std::string commands;
  for (const CLI::App* sub : command.get_subcommands({})) {
    commands += fmt::format(".TP\n.B {}\n{}\n", roff(sub->get_name()), roff(sub->get_description()));
  }
  if (!options.empty()) page += "[options]\n";
  if (!commands.empty()) page += "command\n.SH COMMANDS\n" + commands;
  if (!arguments.empty()) page += ".SH ARGUMENTS\n" + arguments;
  if (!options.empty()) page += ".SH OPTIONS\n" + options;
  if (!command.get_footer().empty()) page += ".SH NOTES\n" + roff(command.get_footer()) + "\n";
  return page;
}

}  // namespace hawser::cli
