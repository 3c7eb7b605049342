#include "cli/reference.h"

#include <fmt/format.h>

#include <algorithm>

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
  if (!option.get_default_str().empty()) text += " Default: " + option.get_default_str() + ".";
  return text;
}

// Adds the words after which bash offers others: a command and its subcommands.
void add_cases(const CLI::App& command, const std::string& path, std::string& cases) {
  std::string words;
  for (const CLI::App* sub : command.get_subcommands({})) {
    words += " " + sub->get_name();
    add_cases(*sub, path + (path.empty() ? "" : " ") + sub->get_name(), cases);
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) words += " --" + name;
  }
  cases += fmt::format("    '{}') words='{}' ;;\n", path, words.empty() ? words : words.substr(1));
}

}  // namespace

std::string man_page(const CLI::App& command, const std::string& name) {
  std::string page = fmt::format(".TH {} 1 \"\" \"hawser {}\"\n", upper(name), HAWSER_VERSION);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.get_description()));
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

std::string bash_completion(const CLI::App& program) {
  std::string cases;
  add_cases(program, "", cases);
  return "# Completion of hawser for bash. Made by: hawser help --completion bash\n"
         "_hawser() {\n"
         "  local path='' words='' word i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    word=${COMP_WORDS[i]}\n"
         "    [[ $word == -* ]] && break\n"
         "    _hawser_words \"${path:+$path }$word\" && path=\"${path:+$path }$word\" || break\n"
         "  done\n"
         "  _hawser_words \"$path\"\n"
         "  if [[ ${COMP_WORDS[COMP_CWORD]} == -* || -z $path ]] || ((i == COMP_CWORD)); then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n"
         "  fi\n"
         "}\n"
         "_hawser_words() {\n"
         "  case $1 in\n" +
         cases +
         "    *) return 1 ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _hawser hawser\n";
}

}  // namespace hawser::cli
