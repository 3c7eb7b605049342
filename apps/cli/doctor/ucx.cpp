#include "cli/doctor/ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "hawser/error.h"

namespace hawser::cli::doctor {
namespace {

using transport::UcxReport;

// Value of UCX_TLS that leaves the transports between hosts. UCX's "shm" includes all transports within a host except
// "self".
constexpr const char* all_between_hosts = "^shm,self";

std::string listed(const std::vector<UcxReport::Transport>& transports) {
  std::vector<std::string> names;
  for (const UcxReport::Transport& one : transports) {
    names.push_back(fmt::format("{}/{} ({})", one.name, one.device, one.uses));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

UcxFacts read_ucx(const UcxOptions& options) {
  UcxFacts facts;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).starts_with("UCX_")) facts.environment.emplace_back(*variable);
  }
  Result<UcxReport> report = transport::ucx_report(options);
  if (!report) {
    facts.error = report.error().text;
    return facts;
  }
  facts.report = std::move(*report);
  if (!options.tls.empty()) {
    facts.between_hosts = facts.report.chosen;
    return facts;
  }
  UcxOptions between_hosts = options;
  between_hosts.tls = all_between_hosts;
  if (Result<UcxReport> other = transport::ucx_report(between_hosts); other) {
    facts.between_hosts = std::move(other->chosen);
  } else {
    facts.between_hosts_error = other.error().text;
  }
  return facts;
}

Section examine_ucx(const UcxFacts& facts) {
  Section section{"ucx", "UCX", facts.error.empty(), {}};
  const auto add = [&](Finding finding) { section.findings.push_back(std::move(finding)); };
  if (!facts.environment.empty()) {
    add({"ucx.environment",
         Severity::note,
         fmt::format("{}: applies where the options say nothing", fmt::join(facts.environment, ", ")),
         {}});
  }
  if (!facts.error.empty()) {
    // UCX is optional, so this is only a note. --require reports it as a problem.
    add({"ucx.library", Severity::note, facts.error, {}});
    return section;
  }
  add({"ucx.library", Severity::good, facts.report.library, {}});
  for (const UcxReport::Transport& one : facts.report.transports) {
    const auto same = [&](const Finding& finding) {
      return finding.id == "ucx.transport" && finding.subject == one.name;
    };
    const auto found = std::find_if(section.findings.begin(), section.findings.end(), same);
    if (found == section.findings.end()) {
      add({"ucx.transport", Severity::good, "over " + one.device, {}, one.name});
    } else {
      found->text += ", " + one.device;
    }
  }
  add({"ucx.choice", Severity::good, "it takes " + listed(facts.report.chosen), {}, "within this host"});
  if (facts.between_hosts_error.empty()) {
    add({"ucx.choice", Severity::good, "it takes " + listed(facts.between_hosts), {}, "to a host like this one"});
  } else {
    add({"ucx.choice",
         Severity::note,
         "no way to other hosts: " + facts.between_hosts_error,
         {},
         "to a host like this one"});
  }
  add({"ucx.settings",
       Severity::good,
       fmt::format("set by the options: {}", fmt::join(facts.report.settings, ", ")),
       {}});
  const std::size_t bytes = facts.report.address_bytes;
  Finding address{"ucx.address",
                  Severity::good,
                  fmt::format("a worker's address has {} of at most {} bytes", bytes, UcxReport::address_bytes_max),
                  {},
                  {},
                  {{"bytes", static_cast<double>(bytes)}}};
  if (bytes > UcxReport::address_bytes_max) {
    address.severity = Severity::problem;
    address.remedy = "name fewer transports or devices: UcxOptions::tls, net_devices";
    section.usable = false;
  }
  add(std::move(address));
  return section;
}

}  // namespace hawser::cli::doctor
