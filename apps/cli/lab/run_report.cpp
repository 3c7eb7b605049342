#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/lab/page.h"
#include "process/program.h"
#include "report/legend.h"

namespace hawser::cli::lab {
namespace {

// Runs a program without a shell and discards its output. Returns its exit status, or 127 if it does not exist.
int run_program(const std::vector<std::string>& words) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    process::discard_output();
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 127;
  return WEXITSTATUS(status);
}

// Converts at three pixels per unit of the drawing.
bool to_png(const std::string& svg, report::DrawingSize size, const std::string& png) {
  return run_program({"rsvg-convert", "--zoom", "3", "-o", png, svg}) == 0 ||
         run_program({"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                      "--force-device-scale-factor=3", fmt::format("--window-size={},{}", size.width, size.height),
                      "--screenshot=" + png, svg}) == 0;
}

bool make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fmt::print(stderr, "hawser: {}: {}\n", folder, error.message());
  return !error;
}

bool export_figures(const std::vector<LabFile>& files, const ReportOptions& options) {
  const std::string svg_folder = options.svg_folder.empty() ? options.png_folder : options.svg_folder;
  if (svg_folder.empty()) return true;
  if (!make_folder(svg_folder) || (!options.png_folder.empty() && !make_folder(options.png_folder))) return false;
  for (const Figure& figure : figures_of(files)) {
    const std::string svg = std::filesystem::absolute(svg_folder) / (figure.name + ".svg");
    const std::string drawing = report::standalone_svg(figure.svg, figure.legend);
    if (!write_file(svg, drawing)) return false;
    if (options.png_folder.empty()) continue;
    if (!to_png(svg, report::size_of(drawing),
                std::filesystem::absolute(options.png_folder) / (figure.name + ".png"))) {
      fmt::print(stderr, "hawser: no PNG: apt-get install librsvg2-bin, or chromium\n");
      return false;
    }
  }
  return true;
}

}  // namespace

int run_report(const ReportOptions& options) {
  std::vector<LabFile> files;
  for (const std::string& input : options.inputs) {
    auto file = read_lab_file(input);
    if (!file) {
      fmt::print(stderr, "hawser: {}\n", file.error());
      return 1;
    }
    files.push_back(std::move(*file));
  }
  return write_file(options.output, page_of(files)) && export_figures(files, options) ? 0 : 1;
}

}  // namespace hawser::cli::lab
