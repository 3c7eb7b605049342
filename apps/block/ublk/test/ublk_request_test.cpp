// Requests of the kernel without a kernel.
#include "block/ublk/ublk_request.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "block/nbd/stored_exports.h"
#include "block/store/store.h"
#include "block/store/store_error.h"
#include "hawser/hawser.h"

namespace hawser::block::ublk {
namespace {

constexpr UblkLimits limits{.size = 8192, .io_bytes_max = 4096};

int error_of(UblkDescriptor descriptor, const UblkLimits& of = limits) {
  const auto request = UblkRequest::decode(descriptor, of);
  return request ? 0 : request.error();
}

TEST(UblkRequest, HasBytesForSectors) {
  const UblkRequest read = UblkRequest::decode({operation::read, 3, 5}, limits).value();
  EXPECT_EQ(read.kind, UblkRequest::Kind::read);
  EXPECT_EQ(read.offset, 5 * 512);
  EXPECT_EQ(read.bytes, 3 * 512);
  EXPECT_TRUE(read.has_data());
  const UblkRequest flush = UblkRequest::decode({operation::flush, 0, ~std::uint64_t{0}}, limits).value();
  EXPECT_EQ(flush.kind, UblkRequest::Kind::flush);
  EXPECT_EQ(flush.bytes, 0);
}

TEST(UblkRequest, HasFlags) {
  const auto flags = [](std::uint32_t bits) { return UblkRequest::decode({bits, 8, 0}, limits).value(); };
  EXPECT_FALSE(flags(operation::write).fua);
  EXPECT_TRUE(flags(operation::write | operation::fua_flag).fua);
  EXPECT_TRUE(flags(operation::write_zeroes).deallocate);
  EXPECT_FALSE(flags(operation::write_zeroes | operation::no_unmap_flag).deallocate);
  // Other flags, such as those for the handling of errors, mean nothing here.
  EXPECT_EQ(flags(operation::discard | 1U << 8 | 1U << 16).kind, UblkRequest::Kind::discard);
}

TEST(UblkRequest, IsWithinTheDevice) {
  EXPECT_EQ(error_of({operation::read, 8, 8}), 0);
  EXPECT_EQ(error_of({operation::read, 8, 9}), EINVAL);
  EXPECT_EQ(error_of({operation::read, 1, 16}), EINVAL);
  EXPECT_EQ(error_of({operation::discard, 16, 0}), 0);
  EXPECT_EQ(error_of({operation::discard, 17, 0}), EINVAL);
  // The end, and the offset in bytes, exceed 64 bits.
  EXPECT_EQ(error_of({operation::write_zeroes, 16, ~std::uint64_t{0}}), EINVAL);
  EXPECT_EQ(error_of({operation::write, 1, std::uint64_t{1} << 55}), EINVAL);
}

TEST(UblkRequest, FitsItsMemory) {
  EXPECT_EQ(error_of({operation::read, 8, 0}), 0);
  EXPECT_EQ(error_of({operation::read, 9, 0}), EINVAL);
  EXPECT_EQ(error_of({operation::write, 9, 0}), EINVAL);
}

TEST(UblkRequest, OfAReadOnlyDeviceDoesNotWrite) {
  UblkLimits read_only = limits;
  read_only.read_only = true;
  EXPECT_EQ(error_of({operation::read, 8, 0}, read_only), 0);
  EXPECT_EQ(error_of({operation::flush, 0, 0}, read_only), 0);
  for (const std::uint32_t code : {operation::write, operation::discard, operation::write_zeroes}) {
    EXPECT_EQ(error_of({code, 8, 0}, read_only), EPERM) << code;
  }
  EXPECT_NE(parameters_of(read_only).attributes & parameter::read_only, 0U);
  EXPECT_EQ(parameters_of(limits).attributes & parameter::read_only, 0U);
}

TEST(UblkRequest, OfAnUnknownKindIsNotSupported) {
  for (const std::uint32_t code : {4U, 6U, 13U, 255U}) EXPECT_EQ(error_of({code, 1, 0}), EOPNOTSUPP) << code;
}

TEST(UblkParameters, AreThoseOfTheVolume) {
  const UblkParameters parameters = parameters_of(limits);
  EXPECT_EQ(parameters.sectors, 16U);
  EXPECT_EQ(parameters.sectors_per_request_max, 8U);
  EXPECT_EQ(parameters.logical_block_shift, 9);
  EXPECT_EQ(parameters.physical_block_shift, 12);
  EXPECT_NE(parameters.attributes & parameter::volatile_cache, 0U);
}

Task<void> use(VolumeStore& store) {
  nbd::StoredExports exports(*Loop::current(), store, {});
  const std::shared_ptr<nbd::NbdDevice> device = (co_await exports.open("v", {})).value();
  const auto run = [&](std::uint32_t code, std::uint32_t sectors, std::uint64_t first, MutableBytes data) {
    return execute(*device, UblkRequest::decode({code, sectors, first}, limits).value(), data);
  };
  const std::vector<std::byte> zeros(4096);
  std::vector<std::byte> written(4096, std::byte{7});
  std::vector<std::byte> found(4096);
  EXPECT_EQ(co_await run(operation::write | operation::fua_flag, 8, 8, written), 4096);
  EXPECT_EQ(co_await run(operation::flush, 0, 0, {}), 0);
  EXPECT_EQ(co_await run(operation::read, 8, 8, found), 4096);
  EXPECT_EQ(found, written);
  EXPECT_EQ(co_await run(operation::write_zeroes, 8, 8, {}), 0);
  EXPECT_EQ(co_await run(operation::read, 8, 8, found), 4096);
  EXPECT_EQ(found, zeros);
  // A part of a block.
  EXPECT_EQ(co_await run(operation::write, 1, 9, MutableBytes(written).first(512)), 512);
  EXPECT_EQ(co_await run(operation::read, 2, 8, MutableBytes(found).first(1024)), 1024);
  EXPECT_EQ(found[511], std::byte{0});
  EXPECT_EQ(found[512], std::byte{7});
  EXPECT_EQ(co_await run(operation::discard, 8, 8, {}), 0);
  EXPECT_EQ(co_await run(operation::read, 8, 8, found), 4096);
  EXPECT_EQ(found, zeros);
}

TEST(UblkRequest, IsExecutedByADevice) {
  const auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(std::uint64_t{64} << 20), {});
  ASSERT_TRUE(store);
  ASSERT_TRUE((*store)->create("v", limits.size, false));
  sync_wait(use(**store));
}

// Fails each request.
class FailingUblkDevice final : public nbd::NbdDevice {
 public:
  explicit FailingUblkDevice(Error error) : error_(std::move(error)) {}

  const nbd::ExportInfo& info() const noexcept override { return info_; }
  void abandon() noexcept override {}
  Task<Result<void>> read(std::uint64_t, MutableBytes) override { return fail_all(); }
  Task<Result<void>> write(std::uint64_t, Bytes, bool) override { return fail_all(); }
  Task<Result<void>> flush() override { return fail_all(); }
  Task<Result<void>> discard(std::uint64_t, std::uint64_t) override { return fail_all(); }
  Task<Result<void>> write_zeroes(std::uint64_t, std::uint64_t, bool, bool) override { return fail_all(); }
  bool fast_zeroes(std::uint64_t, bool) const noexcept override { return false; }
  Task<Result<std::vector<nbd::Extent>>> extents(std::uint64_t, std::uint64_t, std::size_t) override {
    co_return std::unexpected(error_);
  }

 private:
  Task<Result<void>> fail_all() { co_return std::unexpected(error_); }

  const Error error_;
  const nbd::ExportInfo info_ = {};
};

TEST(UblkRequest, FailsWithAnErrnoValueThatTheKernelKnows) {
  const auto result = [](Error error) {
    return sync_wait([](Error given) -> Task<std::int32_t> {
      FailingUblkDevice device(std::move(given));
      co_return co_await execute(device, {.kind = UblkRequest::Kind::write, .bytes = 512}, {});
    }(std::move(error)));
  };
  EXPECT_EQ(result(store_fail(ENOSPC, "full").error()), -ENOSPC);
  EXPECT_EQ(result(store_fail(EROFS, "read-only").error()), -EPERM);
  EXPECT_EQ(result(store_fail(ENODEV, "removed").error()), -EIO);
  EXPECT_EQ(result(fail(ErrorCode::unavailable, "no server").error()), -EIO);
}

}  // namespace
}  // namespace hawser::block::ublk
