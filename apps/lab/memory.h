#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// Alignment that devices prefer. With a smaller alignment they may read and write a cache line in two parts.
inline constexpr std::size_t cache_line_bytes = 64;

struct MemoryOptions {
  std::size_t bytes = 0;
  bool huge_pages = false;     // Use pages of 2 MiB: reserved ones, or else transparent ones.
  std::size_t misaligned = 0;  // Offset from the beginning of a cache line; less than cache_line_bytes.
};

// Zeroed pages that are mapped and present from the start.
class Memory {
 public:
  static Result<Memory> allocate(const MemoryOptions& options);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return bytes_; }
  MutableBytes bytes() noexcept { return {data_, bytes_}; }
  bool aligned() const noexcept { return reinterpret_cast<std::uintptr_t>(data_) % cache_line_bytes == 0; }
  // Returns whether huge pages were requested and obtained. Transparent huge pages are only advice to the kernel and
  // count as obtained.
  bool huge_pages() const noexcept { return huge_; }

 private:
  Memory() = default;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool huge_ = false;
};

// Memory that is registered with a device.
struct LabMemory {
  Memory memory;
  std::unique_ptr<transport::rdma::MemoryRegion> region;

  static Result<LabMemory> make(transport::rdma::Device& device, const MemoryOptions& options,
                                transport::rdma::Access access);
  transport::rdma::Segment segment(std::size_t offset, std::size_t bytes) const noexcept {
    return {memory.data() + offset, static_cast<std::uint32_t>(bytes), region->local_key()};
  }
  std::uint64_t address(std::size_t offset) const noexcept {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
};

// Fills `bytes` with a pattern that depends on `seed` and on the offset, so that bytes of another message and shifted
// bytes are detected.
void fill_pattern(MutableBytes bytes, std::uint64_t seed) noexcept;
// Returns the offset of the first byte that differs from the pattern, or std::nullopt if all bytes match.
std::optional<std::size_t> find_difference(Bytes bytes, std::uint64_t seed) noexcept;
// Fills `bytes` with a value that no test pattern contains, so that stale bytes are detected.
void poison(MutableBytes bytes) noexcept;

}  // namespace hawser::lab
