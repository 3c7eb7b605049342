#include "cli/doctor/rdma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cli/doctor/rdma_facts.h"
#include "cli/doctor/test/fake_verbs_testing.h"
#include "cli/doctor/test/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;
using transport::rdma::GidType;

// A machine with one device, without any problem.
class Rdma : public testing::Test {
 protected:
  Rdma() {
    verbs.list.push_back(std::make_shared<FakeDevice>("fake0"));
    fake.write("/sys/class/infiniband/fake0/ports/1/phys_state", "5: LinkUp\n");
    fake.write("/sys/class/infiniband/fake0/ports/1/gid_attrs/ndevs/1", "eth7\n");
    fake.write("/sys/class/infiniband/fake0/device/numa_node", "-1\n");
    fake.write("/sys/class/net/eth7/mtu", "9000\n");
    fake.write("/sys/class/net/eth7/operstate", "up\n");
    fake.write("/dev/infiniband/uverbs0", "");
  }
  RdmaFacts read() { return read_rdma(fake.files(), verbs, machine, options, self_test); }
  Section examine() { return examine_rdma(read()); }
  FakeDevice& device() { return *verbs.list.front(); }

  FakeFiles fake;
  FakeVerbs verbs;
  MachineFacts machine;
  RdmaOptions options;
  Duration self_test = std::chrono::milliseconds(2);
};

TEST_F(Rdma, Fine) {
  const Section section = examine();
  EXPECT_TRUE(section.usable);
  for (const Finding& finding : section.findings) EXPECT_EQ(finding.severity, Severity::good) << finding.text;
  EXPECT_EQ(find(section, "rdma.link").subject, "fake0/1");
  EXPECT_THAT(find(section, "rdma.link").text, HasSubstr("RoCE on eth7"));
  EXPECT_THAT(find(section, "rdma.address").text, HasSubstr("GID 1: ::ffff:10.0.0.0 roce_v2, chosen"));
  EXPECT_THAT(find(section, "rdma.choice").text, HasSubstr("fake0 port 1, GID 1"));
  EXPECT_THAT(find(section, "rdma.self_test").text, HasSubstr("MB/s"));
  EXPECT_THAT(find(section, "rdma.memory_per_connection").text, HasSubstr("2.5 MiB"));
  EXPECT_THAT(find(section, "rdma.memory_per_connection").figures, testing::Contains(testing::Pair("bytes", 2621440)));
  EXPECT_EQ(find(section, "rdma.self_test").figures.front().first, "one_way_us");
  EXPECT_GT(find(section, "rdma.self_test").figures.front().second, 0);
}

TEST_F(Rdma, NoDevice) {
  verbs.unavailable = "this machine has no RDMA device";
  FakeFiles empty;
  const Section section = examine_rdma(read_rdma(empty.files(), verbs, machine, options, self_test));
  EXPECT_FALSE(section.usable);
  EXPECT_EQ(find(section, "rdma.device").severity, Severity::note);
}

TEST_F(Rdma, KernelHasOneThatTheContainerMayNotUse) {
  verbs.unavailable = "no devices";
  FakeFiles container;
  container.write("/sys/class/infiniband/mlx5_0/x", "");
  const Finding finding =
      find(examine_rdma(read_rdma(container.files(), verbs, machine, options, self_test)), "rdma.device");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.text, HasSubstr("mlx5_0"));
  EXPECT_THAT(finding.remedy, HasSubstr("--device /dev/infiniband"));
}

TEST_F(Rdma, KernelHasOneThatTheLibraryDoesNotKnow) {
  verbs.unavailable = "no devices";
  EXPECT_THAT(find(examine(), "rdma.device").remedy, HasSubstr("ibverbs-providers"));
}

TEST_F(Rdma, CardWithoutDriver) {
  verbs.unavailable = "no devices";
  FakeFiles machine_files;
  machine_files.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n");
  machine_files.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x15b3\n");
  machine_files.write("/sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n");
  machine_files.write("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
  const RdmaFacts facts = read_rdma(machine_files.files(), verbs, machine, options, self_test);
  EXPECT_THAT(facts.cards_without_driver, testing::ElementsAre("0000:01:00.0"));
  EXPECT_THAT(find(examine_rdma(facts), "rdma.device").remedy, HasSubstr("modprobe"));
  machine_files.write("/sys/bus/pci/devices/0000:01:00.0/infiniband/mlx5_0/x", "");
  EXPECT_TRUE(read_rdma(machine_files.files(), verbs, machine, options, self_test).cards_without_driver.empty());
}

TEST_F(Rdma, CannotBeOpened) {
  verbs.open_error = "opening fake0: Permission denied";
  const Section section = examine();
  EXPECT_FALSE(section.usable);
  EXPECT_THAT(find(section, "rdma.open").remedy, HasSubstr("uverbs"));
}

TEST_F(Rdma, WrongOptions) {
  options.recv_queue_depth = 1;
  const Section section = examine();
  EXPECT_THAT(find(section, "rdma.options").text, HasSubstr("recv_queue_depth"));
  EXPECT_FALSE(has(section, "rdma.self_test"));
}

TEST_F(Rdma, LockedMemory) {
  machine.locked_bytes = {8 << 20, 8 << 20};
  EXPECT_EQ(find(examine(), "rdma.memlock").severity, Severity::problem);
  machine.locked_bytes = {64 << 20, 64 << 20};
  const Finding finding = find(examine(), "rdma.memlock");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("about 25 connections"));
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -l"));
  machine.may_lock_any = true;
  EXPECT_EQ(find(examine(), "rdma.memlock").severity, Severity::good);
}

TEST_F(Rdma, MemoryPerConnectionFollowsTheOptions) {
  options.shared_receive_queue = true;
  EXPECT_THAT(find(examine(), "rdma.memory_per_connection").text, HasSubstr("32 KiB of it when idle"));
}

TEST_F(Rdma, PortDown) {
  device().status.active = false;
  fake.write("/sys/class/infiniband/fake0/ports/1/phys_state", "3: Disabled\n");
  const Section section = examine();
  EXPECT_FALSE(section.usable);
  const Finding finding = find(section, "rdma.link");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("3: Disabled"));
  EXPECT_THAT(finding.remedy, HasSubstr("ip link set dev eth7 up"));
  EXPECT_EQ(find(section, "rdma.choice").severity, Severity::problem);
}

TEST_F(Rdma, SmallPacketsForTheInterfacesMtu) {
  device().status.mtu_bytes = 1024;
  fake.write("/sys/class/net/eth7/mtu", "1500\n");
  const Finding finding = find(examine(), "rdma.mtu");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("1024"));
  EXPECT_THAT(finding.text, HasSubstr("eth7's MTU is 1500"));
  EXPECT_THAT(finding.remedy, HasSubstr("mtu 9000"));
}

TEST_F(Rdma, PacketsThatDoNotFitTheInterface) {
  fake.write("/sys/class/net/eth7/mtu", "1500\n");
  EXPECT_EQ(find(examine(), "rdma.mtu").severity, Severity::problem);
}

TEST_F(Rdma, PathMtuBeyondThePorts) {
  device().status.mtu_bytes = 2048;
  options.path_mtu_bytes = 4096;
  EXPECT_EQ(find(examine(), "rdma.path_mtu").severity, Severity::problem);
}

TEST_F(Rdma, NoAddress) {
  device().addresses.clear();
  const Section section = examine();
  EXPECT_EQ(find(section, "rdma.no_address").severity, Severity::problem);
  EXPECT_EQ(find(section, "rdma.choice").severity, Severity::problem);
  EXPECT_FALSE(section.usable);
}

TEST_F(Rdma, OnlyAnUnroutableAddress) {
  device().addresses.front().type = GidType::roce_v1;
  EXPECT_EQ(find(examine(), "rdma.address_type").severity, Severity::warning);
}

TEST_F(Rdma, ChoiceByOptions) {
  options.device = "other";
  EXPECT_THAT(find(examine(), "rdma.choice").text, HasSubstr("other"));
  options.device = "fake0";
  options.gid_index = 9;
  EXPECT_THAT(find(examine(), "rdma.no_address").text, HasSubstr("gid_index is 9"));
}

TEST_F(Rdma, SelfTestFails) {
  device().completes_with = transport::rdma::WorkStatus::retry_exceeded;
  const Section section = examine();
  EXPECT_FALSE(section.usable);
  const Finding finding = find(section, "rdma.self_test");
  EXPECT_EQ(finding.severity, Severity::problem);
  EXPECT_THAT(finding.remedy, HasSubstr("4791"));
}

TEST_F(Rdma, SelfTestCanBeLeftOut) {
  self_test = Duration::zero();
  const Section section = examine();
  EXPECT_FALSE(has(section, "rdma.self_test"));
  EXPECT_TRUE(section.usable);
}

TEST_F(Rdma, InlineLimit) {
  device().inline_bytes_max = 64;
  const Finding finding = find(examine(), "rdma.inline");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.text, HasSubstr("64 bytes inline of the 256"));
}

TEST_F(Rdma, DeviceLimits) {
  device().limits_.queue_pair_requests = options.send_queue_depth - 1;
  device().limits_.completion_queue_entries = 1000;
  device().limits_.shared_receive_requests = 0;
  options.shared_receive_queue = true;
  const Section section = examine();
  EXPECT_EQ(find(section, "rdma.queue").severity, Severity::problem);
  EXPECT_EQ(find(section, "rdma.completion_queue").severity, Severity::warning);
  EXPECT_EQ(find(section, "rdma.shared_receive_queue").severity, Severity::problem);
}

TEST_F(Rdma, Counters) {
  device().counted = {{"rcvd_rnr_err", 3}, {"sent_pkts", 1000}};
  Finding finding = find(examine(), "rdma.counter");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.text, HasSubstr("rcvd_rnr_err is 3"));
  device().counter_that_moves = "rcvd_rnr_err";
  finding = find(examine(), "rdma.counter");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.text, HasSubstr("grew by"));
}

TEST_F(Rdma, SlowSlotAndNuma) {
  fake.write("/sys/class/infiniband/fake0/device/numa_node", "1\n");
  fake.write("/sys/class/infiniband/fake0/device/current_link_speed", "8.0 GT/s PCIe\n");
  fake.write("/sys/class/infiniband/fake0/device/max_link_speed", "16.0 GT/s PCIe\n");
  fake.write("/sys/class/infiniband/fake0/device/current_link_width", "16\n");
  fake.write("/sys/class/infiniband/fake0/device/max_link_width", "16\n");
  EXPECT_FALSE(has(examine(), "rdma.numa"));
  machine.numa_nodes = 2;
  const Section section = examine();
  EXPECT_EQ(find(section, "rdma.slot").severity, Severity::warning);
  EXPECT_THAT(find(section, "rdma.slot").text, HasSubstr("8.0 GT/s PCIe x16"));
  EXPECT_THAT(find(section, "rdma.numa").remedy, HasSubstr("--cpunodebind=1"));
}

}  // namespace
}  // namespace hawser::cli::doctor
