#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hawser::cli::doctor {

enum class Severity : std::uint8_t {
  good,     // The setting is as it should be.
  note,     // Information that requires no action.
  warning,  // The transport works, but is slower than necessary or fails under load.
  problem,  // The transport does not work, although it is required or the hardware is present.
};

// Result of one check.
struct Finding {
  std::string id;  // Stable name for scripts, such as "kernel.io_uring".
  Severity severity = Severity::good;
  std::string text;
  std::string remedy;   // Remedy; empty if nothing has to be done.
  std::string subject;  // Selects one of several objects: "rxe0", or "rxe0/1" for its port. Empty if there is only one.
  // The numbers of the text, for scripts. The names contain the units, such as "one_way_us".
  std::vector<std::pair<std::string, double>> figures;
};

// The findings about a transport or about the machine.
struct Section {
  std::string name;     // For scripts and --require: "machine", "tcp", "shm", "ucx", "rdma".
  std::string title;    // Heading for people.
  bool usable = false;  // A connection can use the transport.
  std::vector<Finding> findings;
};

struct DoctorReport {
  std::vector<Section> sections;
};

std::string_view to_string(Severity severity) noexcept;
Severity worst(const DoctorReport& report) noexcept;

// Adds a problem for each named section that is not usable or does not exist.
void require(DoctorReport& report, const std::vector<std::string>& names);

// Returns 0 if no finding is worse than a note, else 1.
int exit_status(const DoctorReport& report) noexcept;

}  // namespace hawser::cli::doctor
