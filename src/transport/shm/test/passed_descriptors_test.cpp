// Tests of descriptors that a peer passes and that take long to close. A loop that closed one would be blocked for that
// time.
#include "os/passed_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/test/lingering_socket_testing.h"
#include "transport/shm/helpers.h"
#include "transport/shm/test/hostile_testing.h"

#ifndef __has_feature  // A feature of Clang.
#define __has_feature(feature) 0
#endif

namespace hawser::transport::shm {
namespace {

// Regards a loop as blocked if it is held up for the socket's whole linger time.
class ShmPassed : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(lingering.works); }
  void TearDown() override {
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(LingeringSocket::seconds));
  }
  // Passes the socket behind `others` harmless descriptors, and closes this side's. Closing the last reference waits.
  bool pass(int to, std::span<const std::byte> bytes, std::size_t others = 0) {
    const Descriptor harmless(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::vector<int> all(others, harmless.get());
    all.push_back(lingering.socket.get());
    const bool passed = pass_descriptors(to, bytes, all);
    if (passed) lingering.socket = Descriptor();
    return passed;
  }
  // Connects to the server's socket, like any process that sees its name.
  static Descriptor connect_to(const Token& name) {
    std::string text("\0hawser-shm-", 12);
    for (const std::byte byte : name) {
      text += "0123456789abcdef"[std::to_integer<std::size_t>(byte) >> 4];
      text += "0123456789abcdef"[std::to_integer<std::size_t>(byte) & 15];
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, text.data(), text.size());
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size())),
              0);
    return socket;
  }

  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  static constexpr std::array<std::byte, 1> ring{};
  LingeringSocket lingering;
};

TEST_F(ShmPassed, AsARingEndsTheConnection) {
  HostileClient client;
  client.bell.emplace(std::move(*meet(client.selection.socket, client.selection.secret, client.memory->fd())));
  ASSERT_TRUE(pass(client.bell->fd(), ring));
  ASSERT_TRUE(client.answer_only().has_value());
  client.open();
  client.turns_until_closed();
  EXPECT_EQ(client.sink.closed.size(), 1U);
}

TEST_F(ShmPassed, WithAConnectionThatIsNotOpened) {
  HostileClient client;
  client.bell.emplace(std::move(*meet(client.selection.socket, client.selection.secret, client.memory->fd())));
  ASSERT_TRUE(pass(client.bell->fd(), ring));
  ASSERT_TRUE(client.answer_only().has_value());
}

// The kernel closes descriptors for which the receiver has no room.
TEST_F(ShmPassed, MoreThanOneWithTheSecret) {
  HostileClient client;
  const Descriptor socket = connect_to(client.selection.socket);
  ASSERT_TRUE(pass(socket.get(), client.selection.secret, 10));
  EXPECT_FALSE(client.answer_only().has_value());
}

TEST_F(ShmPassed, ToASocketThatIsNotAccepted) {
  HostileClient client;
  const Descriptor socket = connect_to(client.selection.socket);
  ASSERT_TRUE(pass(socket.get(), ring));
}

TEST_F(ShmPassed, AreRefusedByTheKernelOnceTheDoorbellIsThere) {
  HostileClient client;
  ASSERT_TRUE(client.answer().has_value());
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!refuse_descriptors(probe.get())) GTEST_SKIP() << "this kernel has no SO_PASSRIGHTS";
  EXPECT_FALSE(pass(client.bell->fd(), ring));
}

// Closing the last descriptor of a large object takes as long as releasing its pages.
TEST(ShmAdopted, WhatIsRefusedIsLeftToTheCaller) {
  const Sizes sizes{ring_bytes_min, 0};
  for (const bool sealed : {false, true}) {
    Descriptor file(memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(2 * sizes.total())), 0);
    const int seals = sealed ? F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL : 0;
    ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, seals), 0);
    EXPECT_FALSE(SharedMemory::adopt(file, sizes, false).has_value());
    EXPECT_TRUE(file.valid()) << (sealed ? "of another size" : "not sealed");
  }
}

// Root may map the lowest addresses, here to memory that does not answer.
TEST(ShmReadable, TheQuestionTouchesNoMemoryOfThePeer) {
#if __has_feature(thread_sanitizer)
  GTEST_SKIP() << "ThreadSanitizer keeps the lowest addresses to itself";
#endif
  const auto socket = MeetingSocket::listen();
  Helpers helpers;
  std::array<int, 2> met{};
  ASSERT_TRUE(socket.has_value());
  ASSERT_EQ(pipe2(met.data(), O_CLOEXEC), 0);
  const Descriptor here(met[0]);
  Descriptor there(met[1]);
  const pid_t peer = fork();
  if (peer == 0) {
    alarm(60);  // Ends a read that is blocked.
    char answer = '0';
    void* const lowest =
        mmap(nullptr, system_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    const int descriptor = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {0, system_page_bytes()};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    const auto memory = SharedMemory::create({ring_bytes_min, 0}, false);
    if (lowest != MAP_FAILED && descriptor >= 0 && ioctl(descriptor, UFFDIO_API, &api) == 0 &&
        ioctl(descriptor, UFFDIO_REGISTER, &range) == 0) {
      answer = '1';
    }
    const auto bell = meet(socket->name(), {}, (*memory)->fd());
    if (!bell || write(met[1], &answer, 1) != 1) _exit(2);
    for (;;) pause();
  }
  there = Descriptor();  // The end of the peer ends the reading.
  char answer = 0;
  ASSERT_EQ(read(met[0], &answer, 1), 1);
  bool readable = false;
  if (answer == '1') {
    const auto arrival = socket->accept({}, helpers);
    readable = arrival.has_value() && PeerProcess(arrival->peer, arrival->bell).may_be_read();
  }
  kill(peer, SIGKILL);
  waitpid(peer, nullptr, 0);
  if (answer != '1') GTEST_SKIP() << "needs root, and userfaultfd";
  EXPECT_TRUE(readable);
}

}  // namespace
}  // namespace hawser::transport::shm
