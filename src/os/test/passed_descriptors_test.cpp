#include "os/passed_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "base/descriptor.h"

namespace hawser {
namespace {

struct PassedDescriptors : testing::Test {
  void SetUp() override {
    std::array<int, 2> both{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    sender = Descriptor(both[0]);
    receiver = Descriptor(both[1]);
    ASSERT_EQ(::pipe2(both.data(), O_CLOEXEC), 0);
    passed = Descriptor(both[0]);
    input = Descriptor(both[1]);
  }
  bool pass() {
    const int one = passed.get();
    return pass_descriptors(sender.get(), as_bytes(std::string_view("text")), {&one, 1});
  }

  Descriptor sender, receiver;
  Descriptor passed, input;  // The ends of a pipe.
};

TEST_F(PassedDescriptors, ComeWithTheirBytes) {
  ASSERT_TRUE(pass());
  std::array<char, 8> text{};
  iovec data{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ASSERT_EQ(recvmsg(receiver.get(), &message, MSG_CMSG_CLOEXEC), 4);
  EXPECT_EQ(std::string(text.data()), "text");
  const cmsghdr* const part = CMSG_FIRSTHDR(&message);
  ASSERT_NE(part, nullptr);
  ASSERT_EQ(part->cmsg_type, SCM_RIGHTS);
  int number = -1;
  std::memcpy(&number, CMSG_DATA(part), sizeof number);
  const Descriptor copy(number);
  ASSERT_EQ(::write(input.get(), "p", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(copy.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'p');
}

TEST_F(PassedDescriptors, DoNotReachASocketThatHasEnded) {
  receiver = Descriptor();
  EXPECT_FALSE(pass());
}

// The kernel refuses from Linux 6.16 on.
TEST_F(PassedDescriptors, AreRefusedIfTheKernelCan) {
  const bool refuses = refuse_descriptors(receiver.get());
  EXPECT_EQ(pass(), !refuses);
}

}  // namespace
}  // namespace hawser
