#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reference/reference.h"

namespace hawser::cli {
namespace {

using Words = std::vector<std::string>;

std::string joined(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

// Calls f(path, command) for the program, whose path is empty, and each of its commands.
void each_command(const CLI::App& command, const std::string& path,
                  const std::function<void(const std::string&, const CLI::App&)>& f) {
  f(path, command);
  for (const CLI::App* sub : command.get_subcommands({})) {
    each_command(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), f);
  }
}

// A name of a function in a shell.
std::string function_of(const CLI::App& program) {
  std::string name = "_" + program.get_name();
  std::ranges::replace(name, '-', '_');
  return name;
}

// The cases of a function that sets `offered` to the words that follow its argument: a path of commands, or such a path
// and an option. For bash and zsh.
std::string cases_of(const CLI::App& program) {
  std::string cases;
  each_command(program, "", [&](const std::string& path, const CLI::App& command) {
    Words words;
    for (const CLI::App* sub : command.get_subcommands({})) words.push_back(sub->get_name());
    for (const CLI::Option* option : command.get_options()) {
      const Words values = values_of(*option);
      for (const std::string& name : option->get_lnames()) {
        words.push_back("--" + name);
        if (!values.empty()) cases += fmt::format("    '{} --{}') offered='{}' ;;\n", path, name, joined(values));
      }
    }
    cases += fmt::format("    '{}') offered='{}' ;;\n", path, joined(words));
  });
  return cases;
}

// Text between single quotes, for fish.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

}  // namespace

// CLI11 describes such a list as {a,b}, or {a->1,b->2}.
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin == std::string::npos ? 0 : begin);
  Words values;
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (std::size_t at = begin + 1; at < end;) {
    const std::size_t comma = std::min(type.find(',', at), end);
    const std::string value = type.substr(at, comma - at);
    values.push_back(value.substr(0, value.find("->")));
    at = comma + 1;
  }
  return values;
}

std::string bash_completion(const CLI::App& program) {
  const std::string name = program.get_name();
  const std::string function = function_of(program);
  return fmt::format(
             "# Completion of {0} for bash. Made by: {0} help --completion bash\n"
             "{1}() {{\n"
             "  local path='' offered='' current=${{COMP_WORDS[COMP_CWORD]}} word i\n"
             "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
             "    word=${{COMP_WORDS[i]}}\n"
             "    [[ $word == -* ]] && break\n"
             "    {1}_offers \"${{path:+$path }}$word\" && path=\"${{path:+$path }}$word\" || break\n"
             "  done\n"
             "  {1}_offers \"$path ${{COMP_WORDS[COMP_CWORD - 1]}}\" || {1}_offers \"$path\"\n"
             "  mapfile -t COMPREPLY < <(compgen -W \"$offered\" -- \"$current\")\n"
             "}}\n"
             "{1}_offers() {{\n"
             "  case $1 in\n",
             name, function) +
         cases_of(program) +
         fmt::format(
             "    *) return 1 ;;\n"
             "  esac\n"
             "}}\n"
             "complete -o default -F {1} {0}\n",
             name, function);
}

std::string zsh_completion(const CLI::App& program) {
  const std::string name = program.get_name();
  const std::string function = function_of(program);
  return fmt::format(
             "#compdef {0}\n"
             "# Completion of {0} for zsh. Made by: {0} help --completion zsh\n"
             "{1}_offers() {{\n"
             "  case $1 in\n",
             name, function) +
         cases_of(program) +
         fmt::format(
             "    *) return 1 ;;\n"
             "  esac\n"
             "}}\n"
             "{1}_complete() {{\n"
             "  local at='' offered='' word\n"
             "  integer i\n"
             "  for ((i = 2; i < CURRENT; i++)); do\n"
             "    word=${{words[i]}}\n"
             "    [[ $word == -* ]] && break\n"
             "    {1}_offers \"${{at:+$at }}$word\" && at=\"${{at:+$at }}$word\" || break\n"
             "  done\n"
             "  {1}_offers \"$at ${{words[CURRENT - 1]}}\" || {1}_offers \"$at\"\n"
             "  compadd -- ${{=offered}}\n"
             "  [[ ${{words[CURRENT]}} == -* ]] || _files\n"
             "}}\n"
             "if [[ ${{funcstack[1]}} == {1} ]]; then {1}_complete \"$@\"; else compdef {1}_complete {0}; fi\n",
             name, function);
}

std::string fish_completion(const CLI::App& program) {
  const std::string name = program.get_name();
  std::string script = fmt::format("# Completion of {0} for fish. Made by: {0} help --completion fish\n", name);
  each_command(program, "", [&](const std::string& path, const CLI::App& command) {
    std::string condition;
    for (std::size_t at = 0; at < path.size();) {
      const std::size_t end = std::min(path.find(' ', at), path.size());
      if (!condition.empty()) condition += "; and ";
      condition += "__fish_seen_subcommand_from " + path.substr(at, end - at);
      at = end + 1;
    }
    Words subs;
    for (const CLI::App* sub : command.get_subcommands({})) subs.push_back(sub->get_name());
    const std::string before = condition.empty() ? "__fish_use_subcommand"
                                                 : condition + "; and not __fish_seen_subcommand_from " + joined(subs);
    for (const CLI::App* sub : command.get_subcommands({})) {
      script += fmt::format("complete -c {} -n {} -f -a {} -d {}\n", name, quoted(before), sub->get_name(),
                            quoted(sub->get_description()));
    }
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& long_name : option->get_lnames()) {
        script += fmt::format("complete -c {} -n {} -l {} -d {}", name,
                              quoted(condition.empty() ? "__fish_use_subcommand" : condition), long_name,
                              quoted(option->get_description()));
        const Words values = values_of(*option);
        if (!values.empty()) {
          script += " -x -a " + quoted(joined(values));
        } else if (option->get_items_expected_max() != 0) {
          script += " -r";
        }
        script += "\n";
      }
    }
  });
  return script;
}

}  // namespace hawser::cli
