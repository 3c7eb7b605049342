#include "kv/engine/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace hawser::kv {

Arena::Arena(std::size_t bytes_max)
    : bytes_given_(std::max(bytes_max, bytes_min) / page_bytes * page_bytes),
      bytes_max_(bytes_given_),
      values_(bytes_max_) {
  // Page 0 is never used, so that no object has the position 0.
  reserved_ = bytes_max_ + page_bytes;
  constexpr std::size_t reserved_max = (std::size_t{~Ref{0}} + 1) * unit_bytes;
  if (reserved_ > reserved_max) throw std::bad_alloc();
  reserved_ = std::min(reserved_ + bytes_max_ / 4 / page_bytes * page_bytes, reserved_max);
  void* const range =
      mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  madvise(range, reserved_, MADV_HUGEPAGE);
  base_ = static_cast<std::byte*>(range);
  pages_.reserve(reserved_ / page_bytes);
  pages_.emplace_back();
  free_pages_.reserve(reserved_ / page_bytes);
}

Arena::~Arena() { munmap(base_, reserved_); }

std::uint8_t Arena::class_of(std::size_t bytes) noexcept {
  if (bytes <= 256) return static_cast<std::uint8_t>(bytes == 0 ? 0 : (bytes - 1) / 16);
  const unsigned doubling = static_cast<unsigned>(std::bit_width(bytes - 1)) - 9;  // 0: 257 to 512 bytes.
  const std::size_t step = std::size_t{32} << doubling;
  return static_cast<std::uint8_t>(16 + 8 * doubling + (bytes - 1 - (std::size_t{256} << doubling)) / step);
}

std::size_t Arena::class_bytes(std::uint8_t size_class) noexcept {
  if (size_class == bucket_class) return 64;
  if (size_class < 16) return (std::size_t{size_class} + 1) * 16;
  const unsigned doubling = (size_class - 16U) / 8;
  return (std::size_t{256} << doubling) + ((size_class - 16U) % 8 + 1) * (std::size_t{32} << doubling);
}

void Arena::link(std::uint32_t page) noexcept {
  Class& owner = by_class_[pages_[page].size_class];
  pages_[page].partial = true;
  pages_[page].previous = no_page;
  pages_[page].next = owner.partial;
  if (owner.partial != no_page) pages_[owner.partial].previous = page;
  owner.partial = page;
}

void Arena::unlink(std::uint32_t page) noexcept {
  Page& left = pages_[page];
  left.partial = false;
  if (left.next != no_page) pages_[left.next].previous = left.previous;
  if (left.previous != no_page) {
    pages_[left.previous].next = left.next;
  } else {
    by_class_[left.size_class].partial = left.next;
  }
}

// True if bytes_max() allows so many bytes more. Memory that freed values have left returns to the system for it.
bool Arena::make_fit(std::size_t bytes) noexcept {
  if (bytes > bytes_max_ - used_) return false;
  const std::size_t free = bytes_max_ - used_ - bytes;
  if (values_.warm_bytes() > free) values_.cool(values_.warm_bytes() - free);
  return true;
}

char* Arena::take_value(std::size_t bytes) noexcept {
  const std::size_t charge = ValueArea::charge_of(bytes);
  if (charge > bytes_max_ - used_) return nullptr;
  char* data = values_.take_warm(bytes);
  if (data == nullptr && make_fit(charge)) data = values_.take_cold(bytes);
  if (data == nullptr) return nullptr;
  used_ += charge;
  outside_ += charge;
  return data;
}

std::uint32_t Arena::take_free_page() {
  if (!make_fit(page_bytes)) return no_page;
  std::uint32_t page = no_page;
  if (!free_pages_.empty()) {
    page = free_pages_.back();
    free_pages_.pop_back();
  } else if ((pages_.size() + 1) * page_bytes <= reserved_) {
    page = static_cast<std::uint32_t>(pages_.size());
    pages_.emplace_back();
  } else {
    return no_page;
  }
  pages_[page] = {};
  used_ += page_bytes;
  return page;
}

bool Arena::add_page(std::uint8_t size_class) {
  const std::uint32_t page = take_free_page();
  if (page == no_page) return false;
  pages_[page].size_class = size_class;
  ++by_class_[size_class].pages;
  link(page);
  return true;
}

Ref Arena::take_page() {
  const std::uint32_t page = take_free_page();
  if (page == no_page) return 0;
  pages_[page].size_class = bucket_class;
  pages_[page].used = 1;
  return static_cast<Ref>(static_cast<std::size_t>(page) * (page_bytes / unit_bytes));
}

Ref Arena::take_slot(std::uint8_t size_class) noexcept {
  const std::uint32_t page = by_class_[size_class].partial;
  if (page == no_page) return 0;
  Page& from = pages_[page];
  const std::size_t bytes = class_bytes(size_class);
  std::byte* slot = base_ + page * page_bytes;
  if (from.free_slot != 0) {
    slot += (from.free_slot - 1U) * bytes;
    std::memcpy(&from.free_slot, slot, sizeof from.free_slot);
  } else {
    slot += from.begun * bytes;
    ++from.begun;
  }
  ++from.used;
  if (from.free_slot == 0 && (from.begun + std::size_t{1}) * bytes > page_bytes) unlink(page);
  return ref_of(slot);
}

void Arena::free_slot(Ref ref, std::uint8_t size_class) noexcept {
  const std::uint32_t page = static_cast<std::uint32_t>(page_of(ref));
  Page& to = pages_[page];
  if (--to.used == 0) {
    if (to.partial) unlink(page);
    --by_class_[size_class].pages;
    used_ -= page_bytes;
    // A few free pages keep their memory, so that a class that grows and shrinks does not call the system each time.
    if (free_pages_.size() >= warm_pages_max) {
      // Otherwise the system would make huge pages of what is left and give them the memory that returns here.
      if (std::exchange(huge_pages_, false)) madvise(base_, reserved_, MADV_NOHUGEPAGE);
      madvise(base_ + page * page_bytes, page_bytes, MADV_DONTNEED);
    }
    free_pages_.push_back(page);
    return;
  }
  std::byte* const slot = at(ref);
  std::memcpy(slot, &to.free_slot, sizeof to.free_slot);
  to.free_slot = static_cast<std::uint16_t>(
      static_cast<std::size_t>(slot - (base_ + page * page_bytes)) / class_bytes(size_class) + 1);
  if (!to.partial) link(page);
}

void Arena::reset() noexcept {
  madvise(base_, reserved_, MADV_DONTNEED);
  if (!std::exchange(huge_pages_, true)) madvise(base_, reserved_, MADV_HUGEPAGE);
  values_.reset();
  bytes_max_ = bytes_given_;
  used_ = outside_ = 0;
  pages_.resize(1);
  free_pages_.clear();
  for (Class& owner : by_class_) owner = {};
}

}  // namespace hawser::kv
