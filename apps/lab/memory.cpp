#include "lab/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/try.h"

namespace hawser::lab {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t page_bytes = 4096;

// Returns word `index` of the pattern: a product of odd numbers and a shift, which costs about as much as copying.
std::uint64_t word_of(std::uint64_t seed, std::uint64_t index) noexcept {
  const std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U + (seed + 1) * 0xd1b54a32d192ed03U;
  return mixed ^ (mixed >> 29);
}

void* map_pages(std::size_t bytes, int flags) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

}  // namespace

Result<Memory> Memory::allocate(const MemoryOptions& options) {
  Memory memory;
  const std::size_t page = options.huge_pages ? huge_page_bytes : page_bytes;
  memory.mapping_bytes_ = (options.bytes + options.misaligned + page - 1) / page * page;
  memory.mapping_bytes_ = std::max(memory.mapping_bytes_, page);
  void* mapping = MAP_FAILED;
  if (options.huge_pages) {
    mapping = map_pages(memory.mapping_bytes_, MAP_HUGETLB | MAP_POPULATE);
    memory.huge_ = mapping != MAP_FAILED;
  }
  if (mapping == MAP_FAILED) {
    mapping = map_pages(memory.mapping_bytes_, 0);
    if (mapping == MAP_FAILED) {
      return fail(ErrorCode::limit_exceeded,
                  "no memory for " + std::to_string(options.bytes) + " bytes: choose fewer or smaller messages");
    }
    if (options.huge_pages) {
      memory.huge_ = madvise(mapping, memory.mapping_bytes_, MADV_HUGEPAGE) == 0;
    } else {
      // Without this advice the comparison means nothing on machines where transparent huge pages are always on.
      madvise(mapping, memory.mapping_bytes_, MADV_NOHUGEPAGE);
    }
    std::memset(mapping, 0, memory.mapping_bytes_);
  }
  memory.mapping_ = mapping;
  memory.data_ = static_cast<std::byte*>(mapping) + options.misaligned;
  memory.bytes_ = options.bytes;
  return memory;
}

Memory::Memory(Memory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(other.mapping_bytes_),
      data_(other.data_),
      bytes_(other.bytes_),
      huge_(other.huge_) {}

Memory::~Memory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

Result<LabMemory> LabMemory::make(transport::rdma::Device& device, const MemoryOptions& options,
                                  transport::rdma::Access access) {
  TRY(Memory&& memory, Memory::allocate(options));
  TRY(auto&& region, device.register_memory(memory.bytes(), access));
  return LabMemory{std::move(memory), std::move(region)};
}

void fill_pattern(MutableBytes bytes, std::uint64_t seed) noexcept {
  std::size_t at = 0;
  std::uint64_t index = 0;
  for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_of(seed, index++);
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  const std::uint64_t word = word_of(seed, index);
  std::memcpy(bytes.data() + at, &word, bytes.size() - at);
}

std::optional<std::size_t> find_difference(Bytes bytes, std::uint64_t seed) noexcept {
  std::size_t at = 0;
  std::uint64_t index = 0;
  const auto first_of = [&](const std::uint64_t& word, std::size_t count) -> std::optional<std::size_t> {
    const auto* const expected = reinterpret_cast<const std::byte*>(&word);
    const auto [found, unused] = std::mismatch(bytes.data() + at, bytes.data() + at + count, expected);
    if (found == bytes.data() + at + count) return std::nullopt;
    return static_cast<std::size_t>(found - bytes.data());
  };
  for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_of(seed, index++);
    if (std::memcmp(bytes.data() + at, &word, sizeof word) != 0) return first_of(word, sizeof word);
  }
  const std::uint64_t word = word_of(seed, index);
  return first_of(word, bytes.size() - at);
}

void poison(MutableBytes bytes) noexcept { std::fill(bytes.begin(), bytes.end(), std::byte{0xa5}); }

}  // namespace hawser::lab
