#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hawser::cli::doctor {

enum class Severity : std::uint8_t {
  good,     // As it should be.
  note,     // Worth knowing; nothing to do unless more is wanted.
  warning,  // Works, but slower than it could, or fails under load.
  problem,  // Does not work, although it is wanted or the hardware is there.
};

// One thing that was looked at.
struct Finding {
  std::string id;  // For scripts, stable: "kernel.io_uring".
  Severity severity = Severity::good;
  std::string text;
  std::string remedy;   // What to do; empty where there is nothing to do.
  std::string subject;  // Which of several: "rxe0", "rxe0/1" for its port. Empty where there is one only.
  // What the text tells in numbers, for scripts: names with their units, such as "one_way_us".
  std::vector<std::pair<std::string, double>> figures;
};

// A transport, or the machine below them all.
struct Section {
  std::string name;     // For scripts and --require: "machine", "tcp", "shm", "ucx", "rdma".
  std::string title;    // For people.
  bool usable = false;  // A connection could use it.
  std::vector<Finding> findings;
};

struct Report {
  std::vector<Section> sections;
};

std::string_view to_string(Severity severity) noexcept;
Severity worst(const Report& report) noexcept;

// Makes a problem of each named section that is not usable, or not there.
void require(Report& report, const std::vector<std::string>& names);

// 0 if nothing is worse than a note, else 1.
int exit_status(const Report& report) noexcept;

}  // namespace hawser::cli::doctor
