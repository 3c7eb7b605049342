#include "block/ublk/queue.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hawser/hawser.h"

namespace hawser::block::ublk {
namespace {

// Has no request.
class IdleUblkDevice final : public nbd::NbdDevice {
 public:
  const nbd::ExportInfo& info() const noexcept override { return info_; }
  void abandon() noexcept override {}
  Task<Result<void>> read(std::uint64_t, MutableBytes) override { co_return Result<void>{}; }
  Task<Result<void>> write(std::uint64_t, Bytes, bool) override { co_return Result<void>{}; }
  Task<Result<void>> flush() override { co_return Result<void>{}; }
  Task<Result<void>> discard(std::uint64_t, std::uint64_t) override { co_return Result<void>{}; }
  Task<Result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool, bool) override { co_return Result<void>{}; }
  bool fast_zeroes(std::uint64_t, bool) const noexcept override { return false; }
  Task<Result<std::vector<nbd::Extent>>> extents(std::uint64_t, std::uint64_t, std::size_t) override {
    co_return std::vector<nbd::Extent>{};
  }

 private:
  const nbd::ExportInfo info_ = {};
};

// A file of memory can be mapped like a device of the driver, and refuses its commands.
TEST(UblkQueue, FailsWhenAFetchIsRefused) {
  const int file = ::memfd_create("commands", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, 1 << 16), 0);
  const Result<void> opened = sync_wait([](int descriptor) -> Task<Result<void>> {
    IdleUblkDevice device;
    const auto queue =
        co_await UblkQueue::open(*Loop::current(), device, descriptor, {.depth = 4, .io_bytes_max = 4096});
    co_return queue ? Result<void>{} : std::unexpected(queue.error());
  }(file));
  ASSERT_FALSE(opened);
  // Without io_uring, and before Linux 6.0, there is not such a ring. Each other failure of it is one of this test.
  const bool ring = opened.error().text.find("make a ring") != std::string::npos;
  const int code = opened.error().application_code;
  if (ring && (code == ENOSYS || code == EPERM || code == EINVAL)) GTEST_SKIP() << opened.error().text;
  EXPECT_EQ(code, EOPNOTSUPP) << opened.error().text;
  EXPECT_NE(opened.error().text.find("fetch the requests of a ublk device"), std::string::npos) << opened.error().text;
}

}  // namespace
}  // namespace hawser::block::ublk
