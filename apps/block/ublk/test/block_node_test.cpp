#include "block/ublk/block_node.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/temporary_folder.h"

namespace hawser::block::ublk {
namespace {

// A loop device without a file, which only this test uses. It needs the rights of root.
class BlockNode : public ::testing::Test {
 protected:
  void SetUp() override {
    control_ = nbd::SocketDescriptor(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    if (!control_.valid() && (errno == ENOENT || errno == EACCES || errno == EPERM)) {
      GTEST_SKIP() << "/dev/loop-control cannot be opened (" << std::strerror(errno)
                   << "): run as root, on a kernel with the module loop";
    }
    ASSERT_TRUE(control_.valid()) << std::strerror(errno);
    device_ = ::ioctl(control_.get(), LOOP_CTL_ADD, -1);
    ASSERT_GE(device_, 0) << std::strerror(errno);
    name_ = "loop" + std::to_string(device_);
  }
  void TearDown() override {
    ::unlink(absent_.c_str());
    if (device_ >= 0) ::ioctl(control_.get(), LOOP_CTL_REMOVE, device_);
  }

  nbd::SocketDescriptor control_;
  int device_ = -1;
  std::string name_;
  // In a folder whose nodes can be opened.
  const std::string absent_ = "/dev/.hawser-test-" + std::to_string(::getpid());
  std::string number_file() const { return "/sys/class/block/" + name_ + "/dev"; }
};

// The node of the device, and one of its number when udev, or a container, has no node.
TEST_F(BlockNode, IsMadeWhereItIsAbsent) {
  for (const std::string& node : {"/dev/" + name_, absent_}) {
    const Result<nbd::SocketDescriptor> opened = open_exclusively(node, number_file());
    ASSERT_TRUE(opened) << opened.error().text;
    EXPECT_TRUE(opened->valid());
    const Result<nbd::SocketDescriptor> second = open_exclusively(absent_, number_file());
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().application_code, EBUSY) << second.error().text;
  }
  EXPECT_NE(::access((absent_ + "." + std::to_string(::getpid())).c_str(), F_OK), 0) << "the node stays";
}

// A program that writes to a node that is absent makes a file of this name.
TEST_F(BlockNode, IsNotAFileOfItsName) {
  std::ofstream(absent_) << "bytes";
  const Result<nbd::SocketDescriptor> opened = open_exclusively(absent_, number_file());
  ASSERT_TRUE(opened) << opened.error().text;
  const Result<nbd::SocketDescriptor> second = open_exclusively("/dev/" + name_, number_file());
  ASSERT_FALSE(second) << "the file was opened in place of the device";
  EXPECT_EQ(second.error().application_code, EBUSY) << second.error().text;
}

TEST(BlockNodeOfNoDevice, IsNotOpened) {
  const Result<nbd::SocketDescriptor> gone =
      open_exclusively("/dev/.hawser-test-absent", "/sys/class/block/hawser-test-absent/dev");
  ASSERT_TRUE(gone) << gone.error().text;
  EXPECT_FALSE(gone->valid());
}

TEST(BlockNodeOfNoDevice, NamesWhatCouldNotBeOpened) {
  const TemporaryFolder folder;
  const std::string node = folder.path() / "node";
  const std::string number_file = folder.path() / "dev";
  std::ofstream(number_file) << "not a number\n";
  const Result<nbd::SocketDescriptor> unknown = open_exclusively(node, number_file);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().application_code, ENOENT);
  EXPECT_NE(unknown.error().text.find(node), std::string::npos) << unknown.error().text;
  // A number without a driver.
  std::ofstream(number_file) << "4095:77\n";
  const Result<nbd::SocketDescriptor> refused = open_exclusively(node, number_file);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text.find("4095:77"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find(node + " cannot be opened (No such file or directory)"), std::string::npos)
      << refused.error().text;
}

}  // namespace
}  // namespace hawser::block::ublk
