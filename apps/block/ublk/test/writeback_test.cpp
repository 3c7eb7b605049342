#include "block/ublk/writeback.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace hawser::block::ublk {
namespace {

// Ends the process: 0 if the error says what is missing.
[[noreturn]] void prepare_without_the_right() {
  ::__user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  ::__user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) std::_Exit(2);
  const Result<void> prepared = prepare_for_writeback();
  std::_Exit(!prepared && prepared.error().application_code == EPERM ? 0 : 1);
}

TEST(Writeback, NeedsARight) { EXPECT_EXIT(prepare_without_the_right(), ::testing::ExitedWithCode(0), ""); }

}  // namespace
}  // namespace hawser::block::ublk
