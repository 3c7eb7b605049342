#include "cli/doctor/tcp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/doctor/test/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;

TcpFacts fine() {
  TcpFacts facts;
  facts.accept_queue_max = 4096;
  return facts;
}

TEST(Tcp, Fine) {
  const Section section = examine_tcp(fine());
  EXPECT_TRUE(section.usable);
  for (const Finding& finding : section.findings) EXPECT_EQ(finding.severity, Severity::good) << finding.id;
}

TEST(Tcp, IoUringRefused) {
  TcpFacts facts = fine();
  facts.io_uring_refusal = "io_uring cannot be used: Operation not permitted";
  Finding finding = find(examine_tcp(facts), "tcp.io_uring");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.text, HasSubstr("epoll"));
  EXPECT_THAT(finding.remedy, HasSubstr("seccomp"));
  facts.io_uring_disabled = 2;
  EXPECT_THAT(find(examine_tcp(facts), "tcp.io_uring").remedy, HasSubstr("io_uring_disabled=0"));
  facts.io_uring_disabled = 1;
  EXPECT_THAT(find(examine_tcp(facts), "tcp.io_uring").remedy, HasSubstr("io_uring_group"));
}

TEST(Tcp, FewOpenFiles) {
  TcpFacts facts = fine();
  facts.open_files = {1024, 1024};
  EXPECT_THAT(find(examine_tcp(facts), "tcp.open_files").remedy, HasSubstr("hard limit"));
  facts.open_files.hard = 524288;
  const Finding finding = find(examine_tcp(facts), "tcp.open_files");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.remedy, HasSubstr("ulimit -n"));
}

TEST(Tcp, ShortAcceptQueue) {
  TcpFacts facts = fine();
  facts.accept_queue_max = 128;
  EXPECT_EQ(find(examine_tcp(facts), "tcp.accept_queue").severity, Severity::note);
}

TEST(Tcp, AnUnreadableAcceptQueueIsNotShort) {
  FakeFiles fake;
  TcpFacts facts = fine();
  facts.accept_queue_max = read_tcp(fake.files(), MachineFacts()).accept_queue_max;
  const Finding finding = find(examine_tcp(facts), "tcp.accept_queue");
  EXPECT_THAT(finding.text, HasSubstr("can't be read"));
  EXPECT_EQ(finding.remedy, "");
}

TEST(Tcp, ReadsTheSysctls) {
  FakeFiles fake;
  fake.write("/proc/sys/kernel/io_uring_disabled", "2\n");
  fake.write("/proc/sys/net/core/somaxconn", "512\n");
  MachineFacts machine;
  machine.open_files = {7, 8};
  const TcpFacts facts = read_tcp(fake.files(), machine);
  EXPECT_EQ(facts.io_uring_disabled, 2);
  EXPECT_EQ(facts.accept_queue_max, 512);
  EXPECT_EQ(facts.open_files.soft, 7u);
}

}  // namespace
}  // namespace hawser::cli::doctor
