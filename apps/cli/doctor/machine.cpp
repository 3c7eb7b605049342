#include "cli/doctor/machine.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace hawser::cli::doctor {
namespace {

constexpr std::string_view cpu_folder = "/sys/devices/system/cpu";
// The kernel's value if no process has set a limit.
constexpr std::int64_t wake_bound_none_us = 2'000'000'000;
// Waking from a deeper idle state takes longer than a call.
constexpr std::int64_t wake_us_max = 10;

ProcessLimit read_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto value = [](rlim_t given) { return given == RLIM_INFINITY ? ProcessLimit::unlimited : given; };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

std::size_t count_numbered(const std::vector<std::string>& names, std::string_view prefix) {
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return name.size() > prefix.size() && name.starts_with(prefix) &&
           name.find_first_not_of("0123456789", prefix.size()) == std::string::npos;
  }));
}

std::vector<IdleState> read_idle_states(const SystemFiles& files) {
  std::vector<IdleState> states;
  const std::string folder = fmt::format("{}/cpu0/cpuidle", cpu_folder);
  for (const std::string& name : files.names(folder)) {
    const std::string state = fmt::format("{}/{}", folder, name);
    if (files.number(state + "/disable").value_or(0) != 0) continue;
    states.push_back({files.text(state + "/name").value_or(name), files.number(state + "/latency").value_or(0)});
  }
  return states;
}

// Reads the file, which holds a 32-bit number in the byte order of the machine.
std::optional<std::int64_t> read_wake_bound(const SystemFiles& files) {
  const std::optional<std::string> bytes = files.raw("/dev/cpu_dma_latency", sizeof(std::int32_t));
  if (!bytes || bytes->size() != sizeof(std::int32_t)) return std::nullopt;
  std::int32_t value = 0;
  std::memcpy(&value, bytes->data(), sizeof value);
  if (value < 0 || value >= wake_bound_none_us) return std::nullopt;
  return value;
}

// Returns whether the process has the effective capability. /proc/self/status lists the capabilities in hexadecimal.
bool has_capability(const SystemFiles& files, unsigned number) {
  const std::string status = files.text("/proc/self/status").value_or("");
  constexpr std::string_view label = "CapEff:";
  const std::size_t begin = status.find(label);
  if (begin == std::string::npos) return false;
  const std::uint64_t effective = std::strtoull(status.c_str() + begin + label.size(), nullptr, 16);
  return (effective >> number & 1) != 0;
}

// Returns the word in brackets, as in "always [madvise] never".
std::string chosen_word(const std::string& text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']');
  return begin == std::string::npos || end == std::string::npos ? text : text.substr(begin + 1, end - begin - 1);
}

Finding examine_clock(const MachineFacts& facts) {
  constexpr std::array<std::string_view, 3> slow = {"hpet", "acpi_pm", "jiffies"};
  Finding finding{"machine.clock", Severity::good, fmt::format("clock source {}", facts.clock_source), {}};
  if (std::find(slow.begin(), slow.end(), facts.clock_source) != slow.end()) {
    finding.severity = Severity::warning;
    finding.text += ": every look at the clock is a slow trip into the kernel, several a call";
    finding.remedy =
        "see why the kernel gave up the processor's counter (dmesg | grep -i tsc); where it errs, boot with "
        "tsc=reliable";
  }
  return finding;
}

Finding examine_frequency(const MachineFacts& facts) {
  Finding finding{"machine.frequency", Severity::good, {}, {}};
  if (facts.frequency_governor.empty()) {
    finding.text = "processor frequency is not this kernel's to set";
    return finding;
  }
  finding.text = fmt::format("frequency governor {} ({})", facts.frequency_governor, facts.frequency_driver);
  if (facts.frequency_governor == "performance") return finding;
  // With a pstate driver, "powersave" raises the clock under load. With other drivers it keeps the lowest frequency.
  const bool pstate = facts.frequency_driver.find("pstate") != std::string::npos;
  finding.severity = facts.frequency_governor == "powersave" && !pstate ? Severity::warning : Severity::note;
  finding.text += finding.severity == Severity::warning ? ": processors stay at their lowest frequency"
                                                        : ": processors clock down between bursts of calls";
  finding.remedy = "cpupower frequency-set --governor performance";
  return finding;
}

Finding examine_idle(const MachineFacts& facts) {
  Finding finding{"machine.idle_states", Severity::good, {}, {}};
  const auto deepest = std::max_element(facts.idle_states.begin(), facts.idle_states.end(),
                                        [](const IdleState& a, const IdleState& b) { return a.wake_us < b.wake_us; });
  if (deepest == facts.idle_states.end()) {
    finding.text = "processor idle states are not this kernel's to choose";
    return finding;
  }
  const std::int64_t wake_us = std::min(deepest->wake_us, facts.wake_bound_us.value_or(deepest->wake_us));
  finding.text = fmt::format("waking from the deepest idle state, {}, takes {} us", deepest->name, deepest->wake_us);
  if (wake_us < deepest->wake_us) finding.text += fmt::format(", and /dev/cpu_dma_latency is held at {} us", wake_us);
  if (wake_us > wake_us_max) {
    finding.severity = Severity::note;
    finding.text += "; a call that finds its loop asleep waits for that";
    finding.remedy =
        "Wait::busy_poll never sleeps; else tuned-adm profile network-latency, or hold /dev/cpu_dma_latency open with "
        "0";
  }
  return finding;
}

Finding examine_huge_pages(const MachineFacts& facts) {
  Finding finding{"machine.huge_pages", Severity::good, {}, {}};
  finding.text = facts.huge_pages > 0
                     ? fmt::format("{} of {} huge pages of 2 MiB are free", facts.huge_pages_free, facts.huge_pages)
                     : std::string("no huge pages set aside");
  if (!facts.transparent_huge_pages.empty()) {
    finding.text += fmt::format("; transparent ones: {}", facts.transparent_huge_pages);
  }
  if (facts.huge_pages == 0 && (facts.transparent_huge_pages.empty() || facts.transparent_huge_pages == "never")) {
    finding.severity = Severity::note;
    finding.remedy = "sysctl vm.nr_hugepages=128, or echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

}  // namespace

MachineFacts read_machine(const SystemFiles& files) {
  MachineFacts facts;
  facts.kernel = files.text("/proc/sys/kernel/osrelease").value_or("of unknown version");
  facts.processors = count_numbered(files.names(cpu_folder), "cpu");
  facts.numa_nodes = count_numbered(files.names("/sys/devices/system/node"), "node");
  facts.clock_source = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource").value_or("");
  const std::string frequency = fmt::format("{}/cpu0/cpufreq", cpu_folder);
  facts.frequency_governor = files.text(frequency + "/scaling_governor").value_or("");
  facts.frequency_driver = files.text(frequency + "/scaling_driver").value_or("unknown driver");
  facts.idle_states = read_idle_states(files);
  facts.wake_bound_us = read_wake_bound(files);
  facts.transparent_huge_pages = chosen_word(files.text("/sys/kernel/mm/transparent_hugepage/enabled").value_or(""));
  constexpr std::string_view huge_pages = "/sys/kernel/mm/hugepages/hugepages-2048kB";
  facts.huge_pages = files.number(fmt::format("{}/nr_hugepages", huge_pages)).value_or(0);
  facts.huge_pages_free = files.number(fmt::format("{}/free_hugepages", huge_pages)).value_or(0);
  facts.may_lock_any = has_capability(files, CAP_IPC_LOCK);
  facts.locked_bytes = read_limit(RLIMIT_MEMLOCK);
  facts.open_files = read_limit(RLIMIT_NOFILE);
  return facts;
}

Section examine_machine(const MachineFacts& facts) {
  Section section{"machine", "This machine", true, {}};
  section.findings.push_back(
      {"machine.kernel",
       Severity::good,
       fmt::format("Linux {}, {} processors{}", facts.kernel, facts.processors,
                   facts.numa_nodes > 1 ? fmt::format(" on {} NUMA nodes", facts.numa_nodes) : ""),
       {}});
  if (!facts.clock_source.empty()) section.findings.push_back(examine_clock(facts));
  section.findings.push_back(examine_frequency(facts));
  section.findings.push_back(examine_idle(facts));
  section.findings.push_back(examine_huge_pages(facts));
  return section;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == ProcessLimit::unlimited) return "unlimited";
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.3g} {}", value, units[unit]);
}

}  // namespace hawser::cli::doctor
