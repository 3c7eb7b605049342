#include "tests/outlived_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "tests/baidu_std/client_tools.h"
#include "tests/raw_peer.h"

namespace hawser::protocol::baidu_std {

// The attempt to connect belongs to the client, as with GrpcClient.
TEST(BaiduStdClientOutlivedLoop, ByAnAttemptToConnect) {
  // A TLS client would wait for the server; without TLS, a connection that the kernel accepts is complete. A full queue
  // of a Unix socket keeps it waiting.
  const std::string name = "@hawser-outlived-" + std::to_string(getpid());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::copy(name.begin() + 1, name.end(), at.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(listener, 0), 0);
  const int first = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::connect(first, reinterpret_cast<const sockaddr*>(&at), size), 0);
  for (const bool another : {false, true}) {
    BaiduStdClient client;
    const auto nothing = [](Loop&) -> Task<void> { co_return; };
    const auto wait = [&client, &name](Loop&) -> Task<void> {
      auto connected = co_await client.connect("unix:" + name);
    };
    testing_tools::destroy_after_loop(nothing, wait, another);
  }
  ::close(first);
  ::close(listener);
}

}  // namespace hawser::protocol::baidu_std
