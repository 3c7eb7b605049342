// Resident memory of a server whose memory is full.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/random.h"
#include "base/temporary_folder.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

// Three times the memory in values of 16 KiB to 1 MiB, with a log, then as much in overwrites. The server has some 30
// MiB beside its 64 MiB, of which 8 are records that the disk has not taken, and 8 those of a new file.
TEST(ResidentMemory, FollowsTheOptionWithALog) {
  const TemporaryFolder folder;
  const ServeProcess server({"--index", "0", "--transports", "none", "--log", (folder.path() / "log").string(),
                             "--fsync", "never", "--log-rewrite", "16M"});
  ASSERT_NE(server.address, "");
  RespPeer peer(server.address);
  Random random(7);
  const std::string bytes(std::size_t{1} << 20, 'x');
  for (const std::uint32_t keys : {10'000'000U, 64U}) {
    for (std::size_t sent = 0; sent < std::size_t{192} << 20;) {
      const std::size_t size = (16U << 10) + random.below(1008U << 10);
      sent += size;
      ASSERT_EQ(peer.call({"SET", std::to_string(random.below(keys)), bytes.substr(0, size)}), "+OK\r\n");
    }
  }
  EXPECT_LT(server.resident_mib_most(), 130U);
  EXPECT_EQ(peer.call({"FLUSHALL"}), "+OK\r\n");
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n");
  EXPECT_LT(server.resident_mib(), 70U);
}

}  // namespace
}  // namespace hawser::kv
