#include "transport/shm/memory/slab.h"

#include <algorithm>
#include <utility>

namespace hawser::transport::shm {

SlabWriter::SlabWriter(const SharedMemory& memory, std::size_t side) noexcept
    : memory_(memory),
      side_(side),
      slab_(memory.slab(side)),
      chunk_bytes_(memory.sizes().chunk()),
      chunks_(memory.sizes().chunks()),
      rotation_(std::min(chunks_, std::max(rotation_span_bytes / chunk_bytes_, rotation_chunks_min))),
      returned_(memory.control().returned[side]) {}

SlabWriter::~SlabWriter() {
  if (loans_ == nullptr) return;
  for (SlabLoan* const loan : loans_->of) {
    if (loan != nullptr) loan->drop();
  }
}

std::size_t SlabWriter::acquire(std::size_t bytes) noexcept {
  const std::size_t wanted = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  if (wanted > chunks_) return none;
  reclaim();
  if (rotated_bytes_ >= rotation_bytes) next_ = rotated_bytes_ = 0;
  std::size_t region = used_.find_lowest(next_, rotation_, wanted);
  if (region == none) region = used_.find_lowest(0, chunks_, wanted);
  if (region == none || !memory_.supply_slab(side_, region * chunk_bytes_, wanted * chunk_bytes_)) return none;
  if (region + wanted <= rotation_) {
    rotated_bytes_ = (region < next_ ? 0 : rotated_bytes_) + bytes;
    next_ = region + wanted;
  }
  use(region, wanted);
  return region;
}

void SlabWriter::use(std::size_t region, std::size_t wanted) noexcept {
  used_.use(region, wanted);
  length_[region] = static_cast<std::uint16_t>(wanted);
  loaned_[loaned_count_++] = static_cast<std::uint16_t>(region);
  returned_[region].store(0, std::memory_order_relaxed);
}

void SlabWriter::reclaim() noexcept {
  for (std::size_t i = 0; i < loaned_count_;) {
    const std::size_t region = loaned_[i];
    if (!has_ended(region)) {
      ++i;
      continue;
    }
    used_.free(region, length_[region]);
    loaned_[i] = loaned_[--loaned_count_];
  }
}

// True if nobody uses the region any more.
bool SlabWriter::has_ended(std::size_t region) noexcept {
  if (SlabLoan* const loan = loans_ == nullptr ? nullptr : loans_->of[region];
      loan != nullptr && loan->state != SlabLoan::State::idle) {
    if (loan->held()) return false;
    loans_->chunks -= length_[region];
    // A peer cannot return what it does not have.
    if (std::exchange(loan->state, SlabLoan::State::idle) == SlabLoan::State::unsent) return true;
  }
  // The acquire orders the receiver's reads before this side's writes.
  return returned_[region].load(std::memory_order_acquire) != 0;
}

Buffer SlabWriter::loan(std::size_t bytes, const std::shared_ptr<const SharedMemory>& memory) {
  const std::size_t wanted = bytes / chunk_bytes_ + (bytes % chunk_bytes_ != 0 ? 1 : 0);
  if (wanted > chunks_ / 2) return {};
  reclaim();
  if (loans_ == nullptr) loans_ = std::make_unique<Loans>();
  if (loans_->chunks + wanted > chunks_ / 2) return {};
  const std::size_t region = used_.find_highest(chunks_, wanted);
  if (region == none || !memory_.supply_slab(side_, region * chunk_bytes_, wanted * chunk_bytes_)) return {};
  SlabLoan*& loan = loans_->of[region];
  if (loan == nullptr) {
    loan = new SlabLoan(memory);
  } else {
    loan->loan_again();
  }
  loans_->chunks += wanted;
  use(region, wanted);
  return Buffer::adopt(loan, at(region), bytes);
}

std::size_t SlabWriter::find_loan(const std::byte* payload, std::size_t bytes) noexcept {
  const std::size_t at = reinterpret_cast<std::uintptr_t>(payload) - reinterpret_cast<std::uintptr_t>(slab_);
  if (at >= chunks_ * chunk_bytes_ || at % chunk_bytes_ != 0) return none;
  const std::size_t region = at / chunk_bytes_;
  SlabLoan* const loan = loans_->of[region];
  if (loan == nullptr || loan->state == SlabLoan::State::idle || bytes > length_[region] * chunk_bytes_) return none;
  if (loan->state == SlabLoan::State::sent && returned_[region].load(std::memory_order_acquire) == 0) return none;
  loan->state = SlabLoan::State::sent;
  returned_[region].store(0, std::memory_order_relaxed);
  return region;
}

SlabReader* SlabReader::create(std::shared_ptr<SharedMemory> memory, std::size_t side) {
  return new SlabReader(std::move(memory), side);
}

SlabReader::SlabReader(std::shared_ptr<SharedMemory> memory, std::size_t side)
    : memory_(std::move(memory)),
      side_(side),
      slab_(memory_->slab(side)),
      slab_bytes_(memory_->sizes().slab),
      chunk_bytes_(memory_->sizes().chunk()),
      returned_(memory_->control().returned[side]) {}

void SlabReader::release() noexcept {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

const std::byte* SlabReader::find(std::size_t region, std::size_t bytes) const noexcept {
  if (bytes == 0 || region >= chunks_max || region * chunk_bytes_ >= slab_bytes_ ||
      bytes > slab_bytes_ - region * chunk_bytes_) {
    return nullptr;
  }
  // The sender cannot have allocated a region again that is still being read.
  if (regions_[region] != nullptr && regions_[region]->loaned.load(std::memory_order_acquire)) return nullptr;
  return slab_ + region * chunk_bytes_;
}

Block* SlabReader::loan(std::size_t number) {
  std::unique_ptr<Region>& region = regions_[number];
  if (region == nullptr) {
    region = std::make_unique<Region>(*this, number);
  } else {
    region->loan();
  }
  region->loaned.store(true, std::memory_order_relaxed);
  references_.fetch_add(1, std::memory_order_relaxed);
  return region.get();
}

void SlabReader::release(std::size_t region) noexcept {
  // If a child drops its copy of a payload, the sender must not use the region again.
  if (memory_->mark().is_ours()) returned_[region].store(1, std::memory_order_release);
}

// As soon as the region is returned, the sender may use it, and it may be on loan again.
void SlabReader::Region::returned(ExternalBlock& block) noexcept {
  Region& self = static_cast<Region&>(block);
  SlabReader& owner = self.reader;
  const std::size_t region = self.number;
  self.loaned.store(false, std::memory_order_release);
  owner.release(region);
  owner.release();
}

}  // namespace hawser::transport::shm
