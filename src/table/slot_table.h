#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace hawser::table {

// Values in slots that are used again. An id is the index of a slot and its generation. Each use of a slot has its own
// generation, so that the id of an earlier use finds nothing until the generations begin again. No generation is 0.
//
// A new value takes the slot that was freed last, so that a table that is rarely full stays small and in the cache. The
// table grows by one slot when none is free, up to slots_max, and does not shrink. Freeing a slot allocates nothing.
//
// T is default-constructible. With Slots = std::deque the values keep their addresses; with std::vector add() may move
// them. Not thread-safe.
template <class T, unsigned generation_bits = 32, template <class...> class Slots = std::vector>
class SlotTable {
 public:
  static_assert(generation_bits >= 2 && generation_bits <= 32);
  using Generation = std::conditional_t<generation_bits <= 16, std::uint16_t, std::uint32_t>;
  static constexpr std::size_t slots_limit = std::numeric_limits<std::uint32_t>::max();
  static constexpr Generation generation_max = static_cast<Generation>((std::uint64_t{1} << generation_bits) - 1);

  SlotTable() noexcept : SlotTable(slots_limit) {}
  explicit SlotTable(std::size_t slots_max) noexcept : slots_max_(slots_max < slots_limit ? slots_max : slots_limit) {}

  bool full() const noexcept { return free_ == none && slots_.size() >= slots_max_; }
  std::size_t slots_max() const noexcept { return slots_max_; }
  // Number of the slots that are in use.
  std::size_t size() const noexcept { return size_; }
  // Number of all slots. The indexes are below it.
  std::size_t slots() const noexcept { return slots_.size(); }

  struct Added {
    std::uint32_t index;
    Generation generation;
    T& value;
  };
  // Takes a slot. Its value is T(), or what free_keeping() left. The table must not be full().
  Added add() {
    if (free_ == none) [[unlikely]]
      grow();
    ++size_;
    const std::uint32_t index = free_;
    Slot& slot = slots_[index];
    free_ = slot.next_free;
    slot.used = true;
    return {index, slot.generation, slot.value};
  }
  Added add(T value) {
    const Added added = add();
    added.value = std::move(value);
    return added;
  }

  // Returns null if no slot is in use under this id. Any numbers are valid ids.
  T* find(std::size_t index, Generation generation) noexcept { return value_in(*this, index, generation); }
  const T* find(std::size_t index, Generation generation) const noexcept { return value_in(*this, index, generation); }
  // Returns null if the slot is free or does not exist.
  T* at(std::size_t index) noexcept { return index < slots() && slots_[index].used ? &slots_[index].value : nullptr; }
  const T* at(std::size_t index) const noexcept {
    return index < slots() && slots_[index].used ? &slots_[index].value : nullptr;
  }
  // The value of a slot that exists, in use or free.
  T& operator[](std::size_t index) noexcept { return slots_[index].value; }
  const T& operator[](std::size_t index) const noexcept { return slots_[index].value; }
  // The generation of the present use, or of the next one if the slot is free.
  Generation generation(std::size_t index) const noexcept { return slots_[index].generation; }

  // Frees a slot that is in use. Its value becomes T().
  void free(std::size_t index) noexcept {
    slots_[index].value = T();
    free_keeping(index);
  }
  // Frees a slot that is in use. Its value stays for the next use, for example with the memory that it has allocated.
  void free_keeping(std::size_t index) noexcept {
    Slot& slot = slots_[index];
    slot.used = false;
    slot.generation = slot.generation == generation_max ? Generation{1} : static_cast<Generation>(slot.generation + 1);
    slot.next_free = free_;
    free_ = static_cast<std::uint32_t>(index);
    --size_;
  }

  // Calls `visit(index, value)` for each slot in use, by index. `visit` must neither add nor free.
  template <class Visit>
  void each(Visit visit) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used) visit(i, slots_[i].value);
    }
  }
  template <class Visit>
  void each(Visit visit) const {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].used) visit(i, slots_[i].value);
    }
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct Slot {
    T value = {};
    std::uint32_t next_free = none;
    Generation generation = 1;
    bool used = false;
  };

  template <class Table>
  static auto value_in(Table& table, std::size_t index, Generation generation) noexcept
      -> decltype(&table.slots_[0].value) {
    if (index >= table.slots_.size()) return nullptr;
    auto& slot = table.slots_[index];
    return slot.used && slot.generation == generation ? &slot.value : nullptr;
  }
  [[gnu::noinline]] void grow() {
    slots_.emplace_back();
    free_ = static_cast<std::uint32_t>(slots_.size() - 1);
  }

  std::size_t slots_max_;
  Slots<Slot> slots_;
  std::uint32_t free_ = none;
  std::size_t size_ = 0;
};

}  // namespace hawser::table
