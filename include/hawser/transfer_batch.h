#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"

namespace hawser {

// Accesses to a peer's memory over one connection are of two classes. Interactive ones precede bulk ones that wait,
// also between the pieces of one. While both wait, bulk accesses get at least 5 % of the bytes, where an access of less
// than 4 KiB counts as 4 KiB.
enum class TransferPriority : std::uint8_t {
  interactive,  // They begin in the order of the calls.
  bulk,         // They begin in the order of their deadlines, so that a later one may precede and interrupt others.
};

// Blocks of local memory, each with its place in a remote region, that are read or written together (RemoteMemory).
// Neighbours that are contiguous in both memories are one run. A batch is prepared once and may be posted any number of
// times, also at new places. It must not change while it is posted. Blocks of one batch may be executed in any order.
// One thread at a time.
class TransferBatch {
 public:
  // A run of blocks that are contiguous in both memories.
  struct Run {
    std::byte* memory = nullptr;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  TransferBatch() noexcept = default;

  void reserve(std::size_t blocks) {
    blocks_.reserve(blocks);
    runs_.reserve(blocks);
  }
  // Adds a block. An empty block counts and transfers nothing.
  void add(MutableBytes local, std::uint64_t offset) {
    blocks_.push_back({local.data(), offset, local.size()});
    bytes_ += local.size();
    append(blocks_.back());
  }
  // Moves the blocks to new places in the region: one offset for each block, in the order of add().
  // Returns false, and changes nothing, if the number of offsets is wrong.
  bool set_offsets(std::span<const std::uint64_t> offsets) {
    if (offsets.size() != blocks_.size()) return false;
    runs_.clear();
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      blocks_[i].offset = offsets[i];
      append(blocks_[i]);
    }
    return true;
  }
  // Forgets the blocks and keeps the memory for new ones.
  void clear() noexcept {
    blocks_.clear();
    runs_.clear();
    bytes_ = 0;
  }

  std::size_t blocks() const noexcept { return blocks_.size(); }
  std::size_t bytes() const noexcept { return bytes_; }
  std::span<const Run> runs() const noexcept { return runs_; }

 private:
  void append(const Run& block) {
    if (block.bytes == 0) return;
    if (!runs_.empty() && runs_.back().memory + runs_.back().bytes == block.memory &&
        runs_.back().offset + runs_.back().bytes == block.offset) {
      runs_.back().bytes += block.bytes;
    } else {
      runs_.push_back(block);
    }
  }

  std::vector<Run> blocks_;
  std::vector<Run> runs_;
  std::size_t bytes_ = 0;
};

}  // namespace hawser
