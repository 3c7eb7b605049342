#include "doctor/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;

TEST(Shm, Fine) {
  const Section section = examine_shm({});
  EXPECT_TRUE(section.usable);
  EXPECT_EQ(exit_status({{section}}), 0);
  EXPECT_EQ(find(section, "shm.direct_read").severity, Severity::good);
}

TEST(Shm, NoMemory) {
  const Section section = examine_shm({.memory_error = "memfd_create: Function not implemented"});
  EXPECT_FALSE(section.usable);
  EXPECT_EQ(find(section, "shm.memory").severity, Severity::problem);
  EXPECT_FALSE(has(section, "shm.direct_read"));
}

TEST(Shm, PeerCannotOpenIt) {
  const Section section = examine_shm({.peer_open_error = "Permission denied"});
  EXPECT_FALSE(section.usable);
  EXPECT_THAT(find(section, "shm.memory").remedy, HasSubstr("same user"));
}

TEST(Shm, PeerCannotBeRead) {
  ShmFacts facts{.peer_read_error = "process_vm_readv: Operation not permitted"};
  Finding finding = find(examine_shm(facts), "shm.direct_read");
  EXPECT_EQ(finding.severity, Severity::note);
  EXPECT_THAT(finding.remedy, HasSubstr("SYS_PTRACE"));
  facts.ptrace_scope = 1;
  EXPECT_THAT(find(examine_shm(facts), "shm.direct_read").remedy, HasSubstr("ptrace_scope=0"));
  facts.ptrace_scope = 2;
  EXPECT_THAT(find(examine_shm(facts), "shm.direct_read").remedy, HasSubstr("CAP_SYS_PTRACE"));
}

TEST(Shm, TriesOnThisMachine) {
  FakeFiles fake;
  fake.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  const ShmFacts facts = read_shm(fake.files());
  EXPECT_EQ(facts.memory_error, "");
  EXPECT_EQ(facts.peer_open_error, "");
  EXPECT_EQ(facts.ptrace_scope, 1);
  EXPECT_THAT(facts.peer_read_error, testing::AnyOf("", HasSubstr("process_vm_readv")));
}

}  // namespace
}  // namespace hawser::cli::doctor
