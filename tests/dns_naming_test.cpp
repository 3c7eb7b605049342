#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/naming.h"
#include "tests/child_program.h"
#include "tests/output_of.h"
#include "tests/testing.h"

// Names from a real name server.
namespace hawser {
namespace {

using namespace testing_tools;

class Dnsmasq : public ::testing::Test {
 protected:
  void SetUp() override {
    path = output_of("PATH=$PATH:/usr/sbin command -v dnsmasq");
    if (path.empty()) GTEST_SKIP() << "dnsmasq is not installed: apt-get install dnsmasq-base";
    path.pop_back();
  }
  // Starts it with these records, in place of the ones before.
  void serve(const std::string& records) {
    program.start(path +
                      " --keep-in-foreground --conf-file=/dev/null --pid-file --no-resolv --no-hosts --log-facility=-" +
                      " --user=$(id -un) --port=" + port + " --listen-address=127.0.0.1 --bind-interfaces" +
                      " --local=/test/ --local-ttl=1 " + records,
                  (folder.path() / "log").string());
  }
  std::unique_ptr<Naming> open(const std::string& name) {
    auto opened = Naming::open(loop, "dns://127.0.0.1:" + port + "/" + name, default_naming());
    EXPECT_TRUE(opened) << error_of(opened);
    return std::move(*opened);
  }
  ::testing::AssertionResult becomes(const Naming& naming, const std::vector<Endpoint>& endpoints) {
    if (loop.run(eventually(loop, [&] { return naming.state().endpoints == endpoints && !naming.state().error; }))) {
      return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << (naming.state().error ? naming.state().error->text : "another list") << "\n"
                                         << program.output();
  }

  TemporaryFolder folder;
  std::string path;
  ChildProgram program;
  std::string port = free_port();
  Loop loop;
};

TEST_F(Dnsmasq, ZonesChangeAndServersFail) {
  const std::string hosts = "--host-record=a.test,127.0.0.2,::2 ";
  serve(hosts + "--srv-host=_rpc._tcp.test,a.test,8001,0,3 --srv-host=_rpc._tcp.test,b.test,8002,10");
  const auto host = open("a.test:80");
  const auto service = open("_rpc._tcp.test");
  EXPECT_TRUE(becomes(*host, {{.address = "127.0.0.2:80"}, {.address = "[::2]:80"}}));
  EXPECT_TRUE(becomes(*service, {{.address = "a.test:8001", .weight = 3}, {.address = "b.test:8002", .priority = 1}}));

  program.kill_now();
  ASSERT_TRUE(loop.run(eventually(loop, [&] { return host->state().error && service->state().error; })));
  EXPECT_EQ(host->state().endpoints.size(), 2U);
  EXPECT_EQ(service->state().endpoints.size(), 2U);
  EXPECT_GT(service->state().age(loop.now()), 0ms);

  // The host is gone, the service has another server.
  serve("--srv-host=_rpc._tcp.test,c.test,8003");
  EXPECT_TRUE(becomes(*service, {{.address = "c.test:8003"}}));
  ASSERT_TRUE(loop.run(eventually(loop, [&] { return host->state().error->text.contains("not found"); })));
  EXPECT_EQ(host->state().endpoints.size(), 2U) << "the last good list stays";
}

}  // namespace
}  // namespace hawser
