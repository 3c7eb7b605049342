#include "cli/doctor/tcp.h"

#include <fmt/format.h>

#include "exec/io_uring.h"

namespace hawser::cli::doctor {
namespace {

// Servers listen with the longest queue that the system allows. A shorter queue loses connections when many arrive at
// once.
constexpr std::int64_t accept_queue_min = 1024;
constexpr std::uint64_t open_files_min = 4096;

Finding examine_io_uring(const TcpFacts& facts) {
  if (facts.io_uring_refusal.empty()) return {"tcp.io_uring", Severity::good, "io_uring can be used", {}};
  Finding finding{"tcp.io_uring", Severity::note, facts.io_uring_refusal + "; epoll is used", {}};
  if (facts.io_uring_disabled == 2) {
    finding.remedy = "sysctl kernel.io_uring_disabled=0";
  } else if (facts.io_uring_disabled == 1) {
    finding.remedy =
        "run with CAP_SYS_ADMIN or in the group of kernel.io_uring_group, or sysctl kernel.io_uring_disabled=0";
  } else if (facts.io_uring_refusal.find("not permitted") != std::string::npos) {
    finding.remedy =
        "a seccomp filter refuses it, as containers' default profiles do: allow io_uring_setup, _enter, _register";
  }
  return finding;
}

Finding examine_open_files(const ProcessLimit& limit) {
  Finding finding{"tcp.open_files", Severity::good, {}, {}};
  if (limit.soft >= open_files_min) {
    finding.text = limit.soft == ProcessLimit::unlimited ? std::string("any number of open files")
                                                         : fmt::format("{} open files", limit.soft);
    return finding;
  }
  finding.severity = Severity::note;
  finding.text = fmt::format("{} open files, so fewer connections than that", limit.soft);
  finding.remedy = limit.hard >= open_files_min ? "ulimit -n 65536, or LimitNOFILE= of the service"
                                                : "raise the hard limit: LimitNOFILE= of the service, or limits.conf";
  return finding;
}

Finding examine_accept_queue(std::int64_t length) {
  Finding finding{
      "tcp.accept_queue", Severity::good, fmt::format("{} connections may wait to be accepted", length), {}};
  if (length == 0) {
    finding.severity = Severity::note;
    finding.text = "net.core.somaxconn can't be read: how many connections may wait to be accepted is unknown";
  } else if (length < accept_queue_min) {
    finding.severity = Severity::note;
    finding.remedy = "sysctl net.core.somaxconn=4096";
  }
  return finding;
}

}  // namespace

TcpFacts read_tcp(const SystemFiles& files, const MachineFacts& machine) {
  TcpFacts facts;
  if (const auto ring = exec::IoUring::make(); !ring) facts.io_uring_refusal = ring.error().text;
  facts.io_uring_disabled = files.number("/proc/sys/kernel/io_uring_disabled").value_or(0);
  facts.open_files = machine.open_files;
  facts.accept_queue_max = files.number("/proc/sys/net/core/somaxconn").value_or(0);
  return facts;
}

Section examine_tcp(const TcpFacts& facts) {
  return {
      "tcp",
      "TCP",
      true,
      {examine_io_uring(facts), examine_open_files(facts.open_files), examine_accept_queue(facts.accept_queue_max)}};
}

}  // namespace hawser::cli::doctor
