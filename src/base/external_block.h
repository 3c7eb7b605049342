#pragma once

#include "hawser/bytes.h"

namespace hawser {

// Counts the references to memory that belongs to somebody else, such as a receive chunk of a device: derived from by
// its owner, who is told when the last reference is gone.
class ExternalBlock : public Block {
 protected:
  // On the thread that drops the last reference, which may be any. The object may be destroyed from within, or loan()
  // it anew.
  using Returned = void (*)(ExternalBlock& block) noexcept;

  explicit ExternalBlock(Returned returned) noexcept : Block(0), returned_(returned) { external_ = true; }
  ~ExternalBlock() = default;

  // One reference again, for an object that was returned.
  void loan() noexcept { references_.store(1, std::memory_order_relaxed); }

 private:
  friend class Block;
  const Returned returned_;
};

}  // namespace hawser
