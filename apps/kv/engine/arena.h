#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kv/engine/value_area.h"

namespace hawser::kv {

// The position of an object in an Arena, in units of 16 bytes. 0: none.
using Ref = std::uint32_t;

// The memory of one shard: a range of addresses that is divided into pages of 64 KiB. Each page in use holds slots of
// one size class, and returns to the free pages when its last slot is free. Values that are too large for a slot lie
// outside, in a ValueArea. Everything together stays below bytes_max(), with the memory that freed values have left.
// One thread only.
class Arena {
 public:
  static constexpr std::size_t page_bytes = 64 * 1024;
  static constexpr std::size_t unit_bytes = 16;
  static constexpr std::size_t slot_bytes_max = 16 * 1024;
  // Multiples of 16 up to 256 bytes, then eight classes for each doubling.
  static constexpr std::size_t classes = 16 + 6 * 8;
  // A class of its own for memory that is not an entry, so that such pages are never emptied by evicting entries.
  static constexpr std::uint8_t bucket_class = classes;
  // Free pages that keep their memory. They are not counted by used().
  static constexpr std::size_t warm_pages_max = 16;
  static constexpr std::size_t bytes_min = 16 * page_bytes;

  // Throws std::bad_alloc if the range of addresses is not available. `bytes_max` is raised to bytes_min.
  explicit Arena(std::size_t bytes_max);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // `bytes` is at most slot_bytes_max.
  static std::uint8_t class_of(std::size_t bytes) noexcept;
  static std::size_t class_bytes(std::uint8_t size_class) noexcept;

  std::byte* at(Ref ref) const noexcept { return base_ + static_cast<std::size_t>(ref) * unit_bytes; }
  Ref ref_of(const void* object) const noexcept {
    return static_cast<Ref>((static_cast<const std::byte*>(object) - base_) / static_cast<std::ptrdiff_t>(unit_bytes));
  }

  // A slot of the class from a page that has one free. 0: there is none.
  Ref take_slot(std::uint8_t size_class) noexcept;
  // Gives the class another page. False if bytes_max() does not allow it.
  bool add_page(std::uint8_t size_class);
  void free_slot(Ref ref, std::uint8_t size_class) noexcept;
  // A whole page, for the table. 0: bytes_max() does not allow it. It is never freed one by one.
  Ref take_page();

  // Memory outside for a value. Null if bytes_max() does not allow it, or if there are not so many free addresses in
  // sequence.
  char* take_value(std::size_t bytes) noexcept;
  void free_value(char* data, std::size_t bytes) noexcept {
    const std::size_t charge = ValueArea::charge_of(bytes);
    used_ -= charge;
    outside_ -= charge;
    values_.free(data, bytes);
  }

  // Frees everything, and returns the memory to the system.
  void reset() noexcept;

  // bytes_max() becomes a quarter larger, until end_excess().
  void begin_excess() noexcept { bytes_max_ = reserved_ - page_bytes; }
  // Memory in use stays. Until reset(), bytes_max() is its amount, if that is more than before begin_excess().
  void end_excess() noexcept { bytes_max_ = used_ > bytes_given_ ? used_ : bytes_given_; }

  std::size_t bytes_max() const noexcept { return bytes_max_; }
  std::size_t used() const noexcept { return used_; }
  // Memory that freed values have left. It is not counted by used().
  std::size_t warm() const noexcept { return values_.warm_bytes(); }
  std::size_t outside() const noexcept { return outside_; }
  std::size_t pages_of(std::uint8_t size_class) const noexcept { return by_class_[size_class].pages; }
  // Calls `visit(ref)` for each slot of the page with the slot `ref`, free or not, until the page has no slot in use.
  template <class Visit>
  void each_slot_of_page(Ref ref, Visit visit) const {
    const std::size_t page = page_of(ref);
    const std::size_t bytes = class_bytes(pages_[page].size_class);
    for (std::size_t i = 0; i < pages_[page].begun && pages_[page].used != 0; ++i) {
      visit(ref_of(base_ + page * page_bytes + i * bytes));
    }
  }

 private:
  static constexpr std::uint32_t no_page = ~std::uint32_t{0};
  struct Page {
    std::uint8_t size_class = 0;
    std::uint16_t used = 0;
    std::uint16_t begun = 0;      // Slots that have been used at least once.
    std::uint16_t free_slot = 0;  // Index of a free slot among these, plus one. A free slot begins with the next one.
    bool partial = false;         // In the list of its class.
    std::uint32_t next = no_page;
    std::uint32_t previous = no_page;
  };
  struct Class {
    std::uint32_t partial = no_page;  // Pages with a free slot.
    std::size_t pages = 0;
  };

  static std::size_t page_of(Ref ref) noexcept { return static_cast<std::size_t>(ref) / (page_bytes / unit_bytes); }
  bool make_fit(std::size_t bytes) noexcept;
  std::uint32_t take_free_page();
  void link(std::uint32_t page) noexcept;
  void unlink(std::uint32_t page) noexcept;

  const std::size_t bytes_given_;
  std::size_t bytes_max_;
  std::size_t reserved_ = 0;  // Length of the range of addresses.
  std::byte* base_ = nullptr;
  bool huge_pages_ = true;  // The system may use them for the range.
  std::size_t used_ = 0;
  std::size_t outside_ = 0;
  ValueArea values_;
  std::vector<Page> pages_;
  std::vector<std::uint32_t> free_pages_;
  Class by_class_[classes + 1];
};

}  // namespace hawser::kv
