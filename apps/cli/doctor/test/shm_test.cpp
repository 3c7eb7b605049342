#include "cli/doctor/shm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/doctor/test/testing.h"

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

TEST(Shm, PeerCannotBeMet) {
  const Section section = examine_shm({.peer_meet_error = "Permission denied"});
  EXPECT_FALSE(section.usable);
  EXPECT_THAT(find(section, "shm.memory").remedy, HasSubstr("same user"));
}

TEST(Shm, NoProc) {
  FakeFiles fake;
  const Section section = examine_shm(read_shm(fake.files()));
  EXPECT_FALSE(section.usable);
  EXPECT_THAT(find(section, "shm.memory").text, HasSubstr("/proc can't be read"));
}

// Protection against tracing is more important than the cost of a copy, so the report does not recommend to disable it.
TEST(Shm, PeerCannotBeRead) {
  for (const std::int64_t scope : {0, 1, 2, 3}) {
    const ShmFacts facts{.peer_read_error = "process_vm_readv: Operation not permitted", .ptrace_scope = scope};
    const Section section = examine_shm(facts);
    EXPECT_TRUE(section.usable);
    const Finding finding = find(section, "shm.direct_read");
    EXPECT_EQ(finding.severity, Severity::note);
    EXPECT_THAT(finding.text, HasSubstr("copied twice"));
    EXPECT_EQ(finding.text.find("ptrace_scope") != std::string::npos, scope != 0);
    EXPECT_THAT(finding.text, HasSubstr("leave the protection"));
    EXPECT_EQ(finding.remedy, "");
  }
}

TEST(Shm, TriesOnThisMachine) {
  FakeFiles fake;
  fake.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  const ShmFacts facts = read_shm(fake.files());
  EXPECT_EQ(facts.memory_error, "");
  EXPECT_EQ(facts.peer_meet_error, "");
  EXPECT_EQ(facts.ptrace_scope, 1);
  EXPECT_THAT(facts.peer_read_error, testing::AnyOf("", HasSubstr("process_vm_readv")));
}

}  // namespace
}  // namespace hawser::cli::doctor
