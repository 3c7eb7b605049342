#include "cli/doctor/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/descriptor.h"

namespace hawser::cli::doctor {
namespace {

// A server of one thread with its offload pool, and a client in the same program, have about this number of threads.
constexpr std::uint64_t tasks_min = 64;
constexpr std::uint64_t memory_bytes_min = std::uint64_t{256} << 20;
constexpr std::uint64_t address_bytes_min = std::uint64_t{4} << 30;

int error_of(const Descriptor& made) noexcept { return made.valid() ? 0 : errno; }

int try_epoll_pwait2() noexcept {
  const Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno;
  epoll_event event{};
  const timespec none{};
  return ::epoll_pwait2(epoll.get(), &event, 1, &none, nullptr) >= 0 ? 0 : errno;
}
int try_pidfd() noexcept { return error_of(Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U)))); }
int try_openat2() noexcept {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  return error_of(Descriptor(static_cast<int>(::syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how))));
}
int try_inotify() noexcept { return error_of(Descriptor(::inotify_init1(IN_CLOEXEC))); }

ProcessLimit limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return {};
  const auto value = [](rlim_t given) { return given == RLIM_INFINITY ? ProcessLimit::unlimited : given; };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

std::size_t allowed_processors() noexcept {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set)) : 0;
}

// The folder of this process in the hierarchy of version 2; empty: none.
std::string control_group(const SystemFiles& files) {
  const std::string lines = files.text("/proc/self/cgroup").value_or("");
  constexpr std::string_view label = "0::";
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = std::string_view(lines).substr(begin, end - begin);
    if (line.starts_with(label)) return std::string(line.substr(label.size()));
    begin = end + 1;
  }
  return {};
}

// Calls `read` with the text of a file of the control group and of each one above it, which limit it too.
template <class F>
void for_each_group(const SystemFiles& files, std::string group, std::string_view file, F read) {
  while (!group.empty()) {
    if (const auto text = files.text(fmt::format("/sys/fs/cgroup{}/{}", group == "/" ? "" : group, file))) read(*text);
    const std::size_t end = group.rfind('/');
    group = group == "/" || end == std::string::npos ? "" : end == 0 ? "/" : group.substr(0, end);
  }
}

std::optional<std::int64_t> smallest_limit(const SystemFiles& files, const std::string& group, std::string_view file) {
  std::optional<std::int64_t> least;
  for_each_group(files, group, file, [&](const std::string& text) {
    std::int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec == std::errc() && (!least || value < *least)) least = value;  // Otherwise it is "max".
  });
  return least;
}

std::optional<double> smallest_quota(const SystemFiles& files, const std::string& group) {
  std::optional<double> least;
  for_each_group(files, group, "cpu.max", [&](const std::string& text) {  // "150000 100000", or "max 100000".
    std::int64_t quota = 0;
    std::int64_t period = 0;
    const auto first = std::from_chars(text.data(), text.data() + text.size(), quota);
    if (first.ec != std::errc() || first.ptr == text.data() + text.size()) return;
    if (std::from_chars(first.ptr + 1, text.data() + text.size(), period).ec != std::errc() || period <= 0) return;
    const double processors = static_cast<double>(quota) / static_cast<double>(period);
    if (!least || processors < *least) least = processors;
  });
  return least;
}

// /proc/self/uid_map has lines of three numbers: first user inside, first user outside, count.
std::optional<std::int64_t> mapped_users(const SystemFiles& files) {
  const auto text = files.text("/proc/self/uid_map");
  if (!text) return std::nullopt;
  constexpr std::int64_t all = std::numeric_limits<std::uint32_t>::max();
  std::int64_t users = 0;
  std::size_t at = 0;
  for (unsigned number = 1; at < text->size(); ++number) {
    at = text->find_first_of("0123456789", at);
    if (at == std::string::npos) break;
    std::int64_t value = 0;
    at = static_cast<std::size_t>(std::from_chars(text->data() + at, text->data() + text->size(), value).ptr -
                                  text->data());
    if (number % 3 == 0) users += std::clamp<std::int64_t>(value, 0, all);
  }
  return users >= all ? std::nullopt : std::optional(users);
}

Finding examine_feature(const KernelFeature& feature) {
  Finding finding{"process.feature", Severity::good, "can be used", {}};
  finding.subject = feature.name;
  if (feature.error == 0) return finding;
  finding.severity = Severity::note;
  finding.text = fmt::format("cannot be used ({}): {}", std::strerror(feature.error), feature.without);
  if (feature.error == EPERM || feature.error == EACCES) {
    finding.remedy = fmt::format("allow {} in the seccomp profile or security policy of the container", feature.name);
  }
  return finding;
}

Finding examine_processors(const ProcessFacts& facts) {
  Finding finding{"process.processors", Severity::good, {}, {}};
  finding.text = fmt::format("{} of {} processors may be used", facts.processors_allowed, facts.processors);
  finding.figures = {{"processors", static_cast<double>(facts.processors_allowed)}};
  if (!facts.processor_quota) return finding;
  finding.text += fmt::format("; the control group grants the time of {:.3g} (cpu.max)", *facts.processor_quota);
  finding.figures.emplace_back("quota", *facts.processor_quota);
  if (*facts.processor_quota < static_cast<double>(facts.processors_allowed)) {
    finding.severity = Severity::note;
    finding.remedy =
        "use no more threads than that, with Wait::event: time of spinning counts, and all threads stop when "
        "the quota of a period is used";
  }
  return finding;
}

// A limit of an amount, and a note if it is below `enough`.
Finding examine_limit(std::string_view id, std::string text, std::uint64_t limit, std::uint64_t enough,
                      std::string_view remedy) {
  Finding finding{std::string(id), limit < enough ? Severity::note : Severity::good, std::move(text), {}};
  if (finding.severity == Severity::note) finding.remedy = remedy;
  finding.figures = {{"limit", static_cast<double>(limit)}};
  return finding;
}

std::uint64_t limit_or_none(std::optional<std::int64_t> limit) {
  return limit ? static_cast<std::uint64_t>(*limit) : ProcessLimit::unlimited;
}

std::vector<Finding> examine_limits(const ProcessFacts& facts) {
  const std::uint64_t memory = limit_or_none(facts.memory_bytes);
  const std::uint64_t tasks = std::min(limit_or_none(facts.tasks), facts.tasks_of_user.soft);
  return {
      examine_limit("process.memory", fmt::format("memory of the control group: {}", bytes_text(memory)), memory,
                    memory_bytes_min,
                    "lower ServerOptions::receive_bytes_max: more than memory.max ends the process (OOM)"),
      examine_limit("process.address_space", fmt::format("address space: {}", bytes_text(facts.address_bytes.soft)),
                    facts.address_bytes.soft, address_bytes_min,
                    "ulimit -v unlimited: each thread reserves address space that it does not use"),
      examine_limit(
          "process.tasks",
          tasks == ProcessLimit::unlimited ? "any number of threads" : fmt::format("{} threads and processes", tasks),
          tasks, tasks_min, "raise pids.max of the control group and ulimit -u: calls that need a thread fail"),
  };
}

Finding examine_users(const ProcessFacts& facts) {
  Finding finding{"process.users", Severity::good, "all users are mapped", {}};
  if (!facts.users) return finding;
  finding.severity = Severity::note;
  finding.text = fmt::format(
      "the user namespace maps {} users: all others appear as one user at Unix sockets, so that rules cannot "
      "distinguish them",
      *facts.users);
  finding.remedy = "do not grant anything to that user (kernel.overflowuid, usually 65534)";
  finding.figures = {{"users", static_cast<double>(*facts.users)}};
  return finding;
}

}  // namespace

ProcessFacts read_process(const SystemFiles& files, const MachineFacts& machine) {
  ProcessFacts facts;
  facts.features = {
      {"epoll_pwait2", "timers are up to 1 ms late", try_epoll_pwait2()},
      {"pidfd_open", "large payloads over shared memory are copied twice, unless the kernel has SO_PEERPIDFD (6.5)",
       try_pidfd()},
      {"openat2", "served files are opened one folder after another", try_openat2()},
      {"inotify_init1", "changed files, such as certificates, are not noticed", try_inotify()},
  };
  const std::string status = files.text("/proc/self/status").value_or("");
  facts.proc = !status.empty();
  facts.call_filter = status.find("Seccomp:\t2") != std::string::npos;
  facts.processors = machine.processors;
  facts.processors_allowed = allowed_processors();
  const std::string group = control_group(files);
  const std::string groups = files.text("/proc/self/cgroup").value_or("");
  facts.groups_of_version_1 = groups.find(":memory:") != std::string::npos || groups.find(":cpu") != std::string::npos;
  facts.processor_quota = smallest_quota(files, group);
  facts.memory_bytes = smallest_limit(files, group, "memory.max");
  facts.tasks = smallest_limit(files, group, "pids.max");
  facts.users = mapped_users(files);
  facts.tasks_of_user = limit_of(RLIMIT_NPROC);
  facts.address_bytes = limit_of(RLIMIT_AS);
  return facts;
}

Section examine_process(const ProcessFacts& facts) {
  Section section{"process", "This process: features and limits", true, {}};
  section.findings.push_back(
      {"process.call_filter",
       Severity::good,
       facts.call_filter ? "a seccomp filter is active: the features below were tried under it" : "no seccomp filter",
       {}});
  for (const KernelFeature& feature : facts.features) section.findings.push_back(examine_feature(feature));
  if (!facts.proc) {
    section.findings.push_back({"process.proc", Severity::note,
                                "/proc is not mounted: shared memory is not offered, and limits were not read",
                                "mount -t proc proc /proc"});
    return section;
  }
  if (facts.groups_of_version_1) {
    section.findings.push_back(
        {"process.groups", Severity::note, "control groups are of version 1: their limits are not read", {}});
  }
  section.findings.push_back(examine_processors(facts));
  std::ranges::move(examine_limits(facts), std::back_inserter(section.findings));
  section.findings.push_back(examine_users(facts));
  return section;
}

}  // namespace hawser::cli::doctor
