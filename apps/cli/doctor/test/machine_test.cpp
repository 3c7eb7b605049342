#include "cli/doctor/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/doctor/test/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;

// A directory can be opened, and read() of it fails as that of some files of the kernel does.
TEST(SystemFiles, AFileThatCannotBeReadIsAbsent) {
  FakeFiles fake;
  fake.write("/sys/class/net/eth0/speed/x", "");
  fake.write("/sys/class/net/eth1/speed", std::string(5000, ' ') + "100\n");
  EXPECT_EQ(fake.files().text("/sys/class/net/eth0/speed"), std::nullopt);
  EXPECT_EQ(fake.files().number("/sys/class/net/eth0/speed"), std::nullopt);
  EXPECT_EQ(fake.files().number("/sys/class/net/eth1/speed"), 100);
}

TEST(Machine, IsReadFromTheKernelsFiles) {
  FakeFiles fake;
  fake.write("/proc/sys/kernel/osrelease", "6.1.0-test\n");
  for (const char* cpu : {"cpu0", "cpu1", "cpu10"})
    fake.write("/sys/devices/system/cpu/" + std::string(cpu) + "/x", "");
  fake.write("/sys/devices/system/cpu/cpufreq/x", "");
  fake.write("/sys/devices/system/node/node0/x", "");
  fake.write("/sys/devices/system/node/node1/x", "");
  fake.write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state2/name", "C8\n");
  fake.write("/sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n");
  fake.write("/dev/cpu_dma_latency", std::string("\x05\0\0\0", 4));
  fake.write("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCapBnd:\t0\n");
  fake.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  fake.write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "128\n");
  fake.write("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");

  const MachineFacts facts = read_machine(fake.files());
  EXPECT_EQ(facts.kernel, "6.1.0-test");
  EXPECT_EQ(facts.processors, 3u);
  EXPECT_EQ(facts.numa_nodes, 2u);
  EXPECT_EQ(facts.clock_source, "tsc");
  EXPECT_EQ(facts.frequency_governor, "schedutil");
  EXPECT_EQ(facts.frequency_driver, "acpi-cpufreq");
  ASSERT_EQ(facts.idle_states.size(), 2u);
  EXPECT_EQ(facts.idle_states[1].name, "C6");
  EXPECT_EQ(facts.idle_states[1].wake_us, 133);
  EXPECT_EQ(facts.wake_bound_us, 5);
  EXPECT_TRUE(facts.may_lock_any);
  EXPECT_EQ(facts.transparent_huge_pages, "madvise");
  EXPECT_EQ(facts.huge_pages, 128);
  EXPECT_EQ(facts.huge_pages_free, 100);
  EXPECT_GT(facts.open_files.soft, 0u);
}

TEST(Machine, NothingToReadIsNothingWrong) {
  FakeFiles fake;
  MachineFacts facts = read_machine(fake.files());
  EXPECT_EQ(facts.wake_bound_us, std::nullopt);
  facts.transparent_huge_pages = "always";
  EXPECT_EQ(exit_status({{examine_machine(facts)}}), 0);
}

TEST(Machine, NobodyHoldsTheWakeLatency) {
  FakeFiles fake;
  fake.write("/dev/cpu_dma_latency", std::string("\x00\x94\x35\x77", 4));  // 2,000,000,000
  EXPECT_EQ(read_machine(fake.files()).wake_bound_us, std::nullopt);
}

TEST(Machine, SlowClock) {
  MachineFacts facts;
  facts.clock_source = "hpet";
  const Finding finding = find(examine_machine(facts), "machine.clock");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.remedy, HasSubstr("tsc"));
  facts.clock_source = "kvm-clock";
  EXPECT_EQ(find(examine_machine(facts), "machine.clock").severity, Severity::good);
}

TEST(Machine, FrequencyGovernor) {
  MachineFacts facts;
  const auto severity = [&](const char* governor, const char* driver) {
    facts.frequency_governor = governor;
    facts.frequency_driver = driver;
    return find(examine_machine(facts), "machine.frequency").severity;
  };
  EXPECT_EQ(severity("", ""), Severity::good);
  EXPECT_EQ(severity("performance", "acpi-cpufreq"), Severity::good);
  EXPECT_EQ(severity("powersave", "acpi-cpufreq"), Severity::warning);
  EXPECT_EQ(severity("powersave", "intel_pstate"), Severity::note);
  EXPECT_EQ(severity("schedutil", "acpi-cpufreq"), Severity::note);
}

TEST(Machine, DeepIdleStates) {
  MachineFacts facts;
  facts.idle_states = {{"POLL", 0}, {"C1", 2}};
  EXPECT_EQ(find(examine_machine(facts), "machine.idle_states").severity, Severity::good);
  facts.idle_states.push_back({"C6", 133});
  EXPECT_EQ(find(examine_machine(facts), "machine.idle_states").severity, Severity::note);
  facts.wake_bound_us = 0;
  EXPECT_EQ(find(examine_machine(facts), "machine.idle_states").severity, Severity::good);
}

TEST(Machine, HugePages) {
  MachineFacts facts;
  facts.transparent_huge_pages = "never";
  EXPECT_EQ(find(examine_machine(facts), "machine.huge_pages").severity, Severity::note);
  facts.huge_pages = 10;
  EXPECT_EQ(find(examine_machine(facts), "machine.huge_pages").severity, Severity::good);
}

TEST(Machine, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(65536), "64 KiB");
  EXPECT_EQ(bytes_text(2621440), "2.5 MiB");
  EXPECT_EQ(bytes_text(ProcessLimit::unlimited), "unlimited");
}

}  // namespace
}  // namespace hawser::cli::doctor
