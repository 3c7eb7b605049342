#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "heap/system_page.h"

namespace hawser::kv {

// The memory of the values of one shard that do not fit into a slot of its arena: a range of addresses that is divided
// into blocks of whole units. A block that is freed keeps its memory, so that the next value needs no page faults: it
// is warm. Beyond warm_bytes_max(), warm blocks return their memory to the system, and are cold. A page of the system
// that is larger than a unit returns when all its units are cold.
//
// The range is larger than the memory that may be in use, so that free blocks between values do not prevent a long
// value. It is reserved when the first value needs it. One thread only.
class ValueArea {
 public:
  static constexpr std::size_t unit_bytes = 4096;

  // At most `bytes_max` bytes are in use at the same time. `page_bytes` is a power of two.
  explicit ValueArea(std::size_t bytes_max, std::size_t page_bytes = system_page_bytes()) noexcept;
  ValueArea(const ValueArea&) = delete;
  ValueArea& operator=(const ValueArea&) = delete;
  ~ValueArea();

  // Bytes that a value takes, with what is needed to manage them.
  static constexpr std::size_t charge_of(std::size_t bytes) noexcept {
    return units_of(bytes) * (unit_bytes + sizeof(Tag));
  }
  // Memory for a value, from warm blocks. Null if none is long enough.
  char* take_warm(std::size_t bytes) noexcept;
  // Memory for a value, which the system provides when it is written. Null if the range of addresses is used up.
  char* take_cold(std::size_t bytes) noexcept;
  void free(char* data, std::size_t bytes) noexcept;
  // Returns `bytes` of warm blocks to the system, or all.
  void cool(std::size_t bytes) noexcept;
  // Frees everything, and returns it to the system.
  void reset() noexcept;

  // Free memory that the system has not got back.
  std::size_t warm_bytes() const noexcept { return warm_units_ * charge_of(1); }
  std::size_t warm_bytes_max() const noexcept { return bytes_max_ / 8; }

 private:
  using Unit = std::uint32_t;  // Its number in the range.
  enum class State : std::uint32_t { in_use, cold, warm };
  // The first and the last unit of a block have `units` and `state`. The first one of a free block has the links.
  struct Tag {
    Unit units;
    State state;
    Unit next;
    Unit previous;
  };
  static constexpr Unit no_unit = ~Unit{0};
  // One bin for each number of units below 8, then eight bins for each doubling.
  static constexpr std::size_t bins = 256;
  struct FreeBlocks {
    std::array<Unit, bins> first;
    std::array<std::uint64_t, bins / 64> filled = {};  // A bit for each bin that is not empty.
    FreeBlocks() noexcept { first.fill(no_unit); }
  };

  static constexpr std::size_t units_of(std::size_t bytes) noexcept { return (bytes + unit_bytes - 1) / unit_bytes; }
  static std::size_t bin_of(std::size_t units) noexcept;
  static std::size_t least_units(std::size_t bin) noexcept;
  FreeBlocks& free_blocks(State state) noexcept { return state == State::warm ? warm_ : cold_; }
  bool reserve() noexcept;
  char* take(std::size_t bytes, State state) noexcept;
  void mark(Unit at, std::size_t units, State state) noexcept;
  void insert(Unit at, std::size_t units, State state) noexcept;
  void remove(Unit at) noexcept;
  Unit insert_merged(Unit at, std::size_t units, State state) noexcept;
  void return_pages(std::size_t begin, std::size_t end, Unit block) noexcept;

  const std::size_t bytes_max_;
  const std::size_t page_bytes_;
  char* base_ = nullptr;
  Tag* tags_ = nullptr;  // One for each unit.
  std::size_t units_ = 0;
  std::size_t touched_ = 0;  // Units before this one may have memory.
  std::size_t warm_units_ = 0;
  FreeBlocks warm_;
  FreeBlocks cold_;
};

}  // namespace hawser::kv
