// The password of a server is not in what a core dump of it would contain.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

#include "base/temporary_folder.h"
#include "kv/test/kv_process.h"
#include "kv/test/resp_peer.h"
#include "tests/process_memory.h"

namespace hawser::kv {
namespace {

TEST(KvCoreDump, HasNoPassword) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "password";
  // No client sends it, because it would lie in a buffer for receiving then.
  const std::string password = "3fd0c7a41b9e5d62" + std::to_string(getpid()) + "8e17b6c2";
  std::ofstream(file) << password << "\n";
  ServeProcess server({"--password-file", file});
  ASSERT_FALSE(server.address.empty()) << server.text;
  RespPeer peer(server.address);
  EXPECT_EQ(peer.call({"PING"}), "-NOAUTH Authentication required.\r\n");
  const testing_tools::Searched searched =
      testing_tools::search_process(server.process(), {{"the password", password}, {"the name of its file", file}});
  if (searched.bytes == 0) GTEST_SKIP() << "this process may not read the memory of another one (ptrace)";
  EXPECT_TRUE(searched.excluded);
  EXPECT_EQ(searched.found, std::set<std::string>{"the name of its file"});
}

}  // namespace
}  // namespace hawser::kv
