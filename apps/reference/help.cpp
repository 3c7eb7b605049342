#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "reference/reference.h"

namespace hawser::cli {
namespace {

constexpr int wrong_options_status = 2;

std::string write_file(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return path.parent_path().string() + ": " + error.message();
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? "" : path.string() + " cannot be written";
}

std::string write_manuals(const CLI::App& command, const std::string& name, const std::filesystem::path& folder) {
  std::string file = name + ".1";
  std::ranges::replace(file, ' ', '-');
  std::string error = write_file(folder / file, man_page(command, name));
  for (const CLI::App* sub : command.get_subcommands({})) {
    if (error.empty()) error = write_manuals(*sub, name + " " + sub->get_name(), folder);
  }
  return error;
}

}  // namespace

std::string install_reference(const CLI::App& program, const std::string& prefix) {
  const std::filesystem::path share = std::filesystem::path(prefix) / "share";
  const std::string name = program.get_name();
  std::string error = write_manuals(program, name, share / "man/man1");
  for (const auto& [file, text] : {
           std::pair{"bash-completion/completions/" + name, bash_completion(program)},
           std::pair{"zsh/site-functions/_" + name, zsh_completion(program)},
           std::pair{"fish/vendor_completions.d/" + name + ".fish", fish_completion(program)},
       }) {
    if (error.empty()) error = write_file(share / file, text);
  }
  return error;
}

HelpCommand::HelpCommand(CLI::App& program)
    : program_(program), command_(program.add_subcommand("help", "Show the help of a command")) {
  command_->add_option("command", of_, "Command; absent: the program");
  command_->add_flag("--man", man_, "Print a manual page for man");
  command_->add_option("--completion", completion_, "Print the completion for this shell")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command_
      ->add_option("--install", install_,
                   "Write manual pages and completions into the folder PREFIX/share, such as ~/.local")
      ->type_name("PREFIX");
}

int HelpCommand::run() const {
  if (!install_.empty()) {
    const std::string error = install_reference(program_, install_);
    if (error.empty()) return 0;
    fmt::print(stderr, "{} help: {}\n", program_.get_name(), error);
    return 1;
  }
  if (!completion_.empty()) {
    fmt::print("{}", completion_ == "bash"  ? bash_completion(program_)
                     : completion_ == "zsh" ? zsh_completion(program_)
                                            : fish_completion(program_));
    return 0;
  }
  const CLI::App* of = &program_;
  std::string name = program_.get_name();
  for (const std::string& word : of_) {
    const auto known = of->get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
    if (known.empty()) {
      fmt::print(stderr, "{0} help: \"{1}\" is not a command: {0} help lists them\n", program_.get_name(), word);
      return wrong_options_status;
    }
    of = known.front();
    name += " " + word;
  }
  fmt::print("{}", man_ ? man_page(*of, name) : of->get_formatter()->make_help(of, name, CLI::AppFormatMode::Normal));
  return 0;
}

}  // namespace hawser::cli
