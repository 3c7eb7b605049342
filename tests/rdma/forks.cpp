// A process that forks while its devices write to its memory.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

#include "tests/rdma/device.h"

namespace hawser::rdma_tests {

inline std::string_view echo_beside_forks(std::string_view text) { return text; }

// Before Linux 5.12, a fork makes the parent's pages copy-on-write although a device uses them. The device's later
// writes are lost, and calls hang or have old contents. RdmaOptions::fork_safe prevents that.
TEST_F(Device, ForkingUnderLoadLosesNothing) {
  Loop loop({.log = no_log()});
  Server server(loop, server_options());
  server.register_handler<echo_beside_forks>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    Client client(on, client_options());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    for (std::size_t round = 0; round < 20; ++round) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        // The pages are shared with the child during this time.
        ::usleep(20'000);
        ::_exit(0);
      }
      for (const std::size_t bytes : std::array<std::size_t, 4>{10, 5000, 100'000, 2'000'000}) {
        const std::string text = text_of(bytes + round);
        const CallOptions reply_options{.timeout = patience};
        auto reply = co_await client.call<echo_beside_forks>(reply_options, text);
        REQUIRE_OK(reply);
        EXPECT_TRUE(*reply == text) << bytes << " bytes in round " << round;
      }
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT_EQ(client.transport(), "rdma");
    EXPECT_EQ(client.failovers(), 0U);
  }(loop, server.address()));
}

}  // namespace hawser::rdma_tests
