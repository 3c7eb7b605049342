#include "cli/doctor/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "cli/doctor/test/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;

TEST(Process, LimitsOfAllGroupsAboveApply) {
  FakeFiles fake;
  fake.write("/proc/self/status", "Name:\tx\nSeccomp:\t2\n");
  fake.write("/proc/self/cgroup", "1:cpu:/old\n0::/a/b\n");
  fake.write("/proc/self/uid_map", "         0     100000      65536\n         65536 1 10\n");
  fake.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  fake.write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  fake.write("/sys/fs/cgroup/a/b/memory.max", "1073741824\n");
  fake.write("/sys/fs/cgroup/a/memory.max", "104857600\n");
  fake.write("/sys/fs/cgroup/memory.max", "max\n");
  fake.write("/sys/fs/cgroup/a/b/pids.max", "max\n");
  fake.write("/sys/fs/cgroup/pids.max", "20\n");

  const ProcessFacts facts = read_process(fake.files(), {});
  EXPECT_TRUE(facts.proc);
  EXPECT_TRUE(facts.call_filter);
  EXPECT_THAT(find(examine_process(facts), "process.groups").text, HasSubstr("version 1"));
  EXPECT_EQ(facts.processor_quota, 1.5);
  EXPECT_EQ(facts.memory_bytes, 104857600);
  EXPECT_EQ(facts.tasks, 20);
  EXPECT_EQ(facts.users, 65546);
  EXPECT_GE(facts.processors_allowed, 1u);

  const Section section = examine_process(facts);
  EXPECT_THAT(find(section, "process.memory").text, HasSubstr("100 MiB"));
  EXPECT_EQ(find(section, "process.memory").severity, Severity::note);
  EXPECT_THAT(find(section, "process.tasks").text, HasSubstr("20 threads"));
  EXPECT_EQ(find(section, "process.tasks").severity, Severity::note);
  EXPECT_THAT(find(section, "process.users").text, HasSubstr("65546 users"));
  EXPECT_THAT(find(section, "process.call_filter").text, HasSubstr("is active"));
}

TEST(Process, NothingIsLimitedWithoutAGroup) {
  FakeFiles fake;
  fake.write("/proc/self/status", "Seccomp:\t0\n");
  fake.write("/proc/self/uid_map", "0 0 4294967295\n");
  const ProcessFacts facts = read_process(fake.files(), {});
  EXPECT_FALSE(facts.call_filter);
  EXPECT_FALSE(has(examine_process(facts), "process.groups"));
  EXPECT_EQ(facts.processor_quota, std::nullopt);
  EXPECT_EQ(facts.memory_bytes, std::nullopt);
  EXPECT_EQ(facts.users, std::nullopt);
  EXPECT_THAT(find(examine_process(facts), "process.memory").text, HasSubstr("unlimited"));
}

TEST(Process, AQuotaBelowTheProcessorsIsNoted) {
  ProcessFacts facts;
  facts.proc = true;
  facts.processors = facts.processors_allowed = 8;
  facts.processor_quota = 0.5;
  const Finding finding = find(examine_process(facts), "process.processors");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.text, HasSubstr("the time of 0.5"));
  EXPECT_THAT(finding.remedy, HasSubstr("Wait::event"));
}

TEST(Process, AMissingFeatureHasItsConsequenceAndItsRemedy) {
  ProcessFacts facts;
  facts.features = {{"openat2", "files are opened slowly", EPERM}, {"epoll_pwait2", "timers are late", 0}};
  const Section section = examine_process(facts);
  EXPECT_EQ(section.findings[1].subject, "openat2");
  EXPECT_EQ(section.findings[1].severity, Severity::note);
  EXPECT_EQ(section.findings[1].text, "cannot be used (Operation not permitted): files are opened slowly");
  EXPECT_THAT(section.findings[1].remedy, HasSubstr("seccomp"));
  EXPECT_EQ(section.findings[2].severity, Severity::good);
  EXPECT_THAT(find(section, "process.proc").text, HasSubstr("shared memory is not offered"));
}

}  // namespace
}  // namespace hawser::cli::doctor
