#pragma once

#include "hawser/bytes.h"

namespace hawser {

// Counts the references to memory that belongs to another object, such as a receive chunk of a device. The owner
// derives from this class and is notified when the last reference is dropped.
class ExternalBlock : public Block {
 protected:
  // Called on the thread that drops the last reference, which may be any thread. The callback may destroy the object or
  // call loan().
  using Returned = void (*)(ExternalBlock& block) noexcept;

  explicit ExternalBlock(Returned returned) noexcept : Block(0), returned_(returned) { external_ = true; }
  ~ExternalBlock() = default;

  // Sets the count to one reference again, for an object that was returned.
  void loan() noexcept { references_.store(1, std::memory_order_relaxed); }

 private:
  friend class Block;
  const Returned returned_;
};

}  // namespace hawser
