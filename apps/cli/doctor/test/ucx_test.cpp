#include "cli/doctor/ucx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/doctor/test/testing.h"

namespace hawser::cli::doctor {
namespace {

using testing::HasSubstr;

UcxFacts fine_ucx() {
  return {.report = {.library = "UCX 1.13.1, /usr/lib/libucp.so.0",
                     .transports = {{"tcp", "lo", ""}, {"posix", "memory", ""}, {"tcp", "eth0", ""}},
                     .settings = {"TLS=tcp,shm"},
                     .chosen = {{"posix", "memory", "am"}},
                     .address_bytes = 200},
          .between_hosts = {{"tcp", "eth0", "am"}}};
}

TEST(Ucx, Fine) {
  const Section section = examine_ucx(fine_ucx());
  EXPECT_TRUE(section.usable);
  EXPECT_EQ(exit_status({{section}}), 0);
  EXPECT_EQ(find(section, "ucx.transport").subject, "tcp");
  EXPECT_EQ(find(section, "ucx.transport").text, "over lo, eth0");
  EXPECT_THAT(find(section, "ucx.settings").text, HasSubstr("TLS=tcp,shm"));
  EXPECT_EQ(find(section, "ucx.address").figures[0].second, 200);
  EXPECT_FALSE(has(section, "ucx.environment"));
  std::vector<std::string> choices;
  for (const Finding& finding : section.findings) {
    if (finding.id == "ucx.choice") choices.push_back(finding.subject + ": " + finding.text);
  }
  EXPECT_THAT(choices, testing::ElementsAre(HasSubstr("within this host: it takes posix/memory (am)"),
                                            HasSubstr("to a host like this one: it takes tcp/eth0 (am)")));
}

TEST(Ucx, NotThere) {
  const Section section = examine_ucx({.error = "UCX can't be loaded: install libucx0"});
  EXPECT_FALSE(section.usable);
  EXPECT_EQ(exit_status({{section}}), 0) << "nobody has to have it";
  DoctorReport report{{section}};
  require(report, {"ucx"});
  EXPECT_EQ(exit_status(report), 1);
}

TEST(Ucx, NoWayToOtherHosts) {
  UcxFacts facts = fine_ucx();
  facts.between_hosts_error = "no such transport";
  const Section section = examine_ucx(facts);
  EXPECT_TRUE(section.usable);
  EXPECT_EQ(section.findings[section.findings.size() - 3].severity, Severity::note);
  EXPECT_THAT(section.findings[section.findings.size() - 3].text, HasSubstr("no such transport"));
}

TEST(Ucx, AnAddressThatDoesNotFit) {
  UcxFacts facts = fine_ucx();
  facts.report.address_bytes = transport::UcxReport::address_bytes_max + 1;
  const Section section = examine_ucx(facts);
  EXPECT_FALSE(section.usable);
  EXPECT_THAT(find(section, "ucx.address").remedy, HasSubstr("net_devices"));
}

TEST(Ucx, OnThisMachine) {
  ::setenv("UCX_HAWSER_DOCTOR_TEST", "yes", 1);
  const UcxFacts facts = read_ucx({.tls = "tcp,self"});
  ::unsetenv("UCX_HAWSER_DOCTOR_TEST");
  EXPECT_THAT(facts.environment, testing::Contains("UCX_HAWSER_DOCTOR_TEST=yes"));
  EXPECT_EQ(find(examine_ucx(facts), "ucx.environment").severity, Severity::note);
  if (!facts.error.empty()) GTEST_SKIP() << facts.error;
  EXPECT_THAT(facts.report.library, HasSubstr("UCX 1."));
  EXPECT_FALSE(facts.between_hosts.empty());
  EXPECT_THAT(read_ucx({.tls = "no_such_transport"}).error, HasSubstr("no_such_transport"));
}

}  // namespace
}  // namespace hawser::cli::doctor
