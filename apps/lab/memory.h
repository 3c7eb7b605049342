#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// What devices like best: below it they may read and write a cache line in two parts.
inline constexpr std::size_t cache_line_bytes = 64;

struct MemoryOptions {
  std::size_t bytes = 0;
  bool huge_pages = false;     // 2 MiB pages, reserved ones or else transparent ones.
  std::size_t misaligned = 0;  // Bytes past a cache line's beginning; below cache_line_bytes.
};

// Zeroed pages of our own, present from the start.
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
  // Whether huge pages were asked for and had. Transparent ones are a wish, which counts as had.
  bool huge_pages() const noexcept { return huge_; }

 private:
  Memory() = default;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool huge_ = false;
};

// Memory that a device may use.
struct RegisteredMemory {
  Memory memory;
  std::unique_ptr<transport::rdma::MemoryRegion> region;

  static Result<RegisteredMemory> make(transport::rdma::Device& device, const MemoryOptions& options,
                                       transport::rdma::Access access);
  transport::rdma::Segment segment(std::size_t offset, std::size_t bytes) const noexcept {
    return {memory.data() + offset, static_cast<std::uint32_t>(bytes), region->local_key()};
  }
  std::uint64_t address(std::size_t offset) const noexcept {
    return reinterpret_cast<std::uintptr_t>(memory.data()) + offset;
  }
};

// Bytes that depend on `seed` and on where they are, so that neither another message's nor shifted ones pass for them.
void fill_pattern(MutableBytes bytes, std::uint64_t seed) noexcept;
// Where `bytes` first differs from that; nothing if all of it is as it was filled.
std::optional<std::size_t> find_difference(Bytes bytes, std::uint64_t seed) noexcept;
// What no pattern is: makes sure that what is verified has arrived since.
void poison(MutableBytes bytes) noexcept;

}  // namespace hawser::lab
