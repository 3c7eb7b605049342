#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "block/store/stored_volume.h"
#include "block/store/test/simulated_disk.h"

namespace hawser::block {

// The contents that each sector of a volume may have.
class SectorModel {
 public:
  // The contents that a sector may have when the power is cut. The last one is what it has, unless a write of it has
  // failed.
  struct Versions {
    std::vector<Sector> contents = {Sector{}};
    bool uncertain = false;  // A write has failed.
  };

  template <class Byte>
  void write(std::uint64_t offset, std::uint64_t bytes, Byte&& byte) {
    const std::uint64_t end = offset + bytes;
    for (std::uint64_t number = offset / sector_bytes; number * sector_bytes < end; ++number) {
      Versions& versions = sectors_[number];
      const std::uint64_t begin = number * sector_bytes;
      // After a write that failed, each of the earlier contents may be the base of this one.
      const std::size_t bases = versions.uncertain ? versions.contents.size() : 1;
      for (std::size_t base = versions.contents.size() - bases, last = versions.contents.size(); base < last; ++base) {
        Sector next = versions.contents[base];
        for (std::uint64_t at = std::max(begin, offset); at < std::min(begin + sector_bytes, end); ++at) {
          next[at - begin] = byte(at);
        }
        versions.contents.push_back(next);
      }
      if (offset <= begin && begin + sector_bytes <= end) versions.uncertain = false;
    }
  }
  // The write of the range has failed: each of its sectors is old or new.
  void fail(std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t number = offset / sector_bytes; number * sector_bytes < offset + bytes; ++number) {
      sectors_[number].uncertain = true;
    }
  }
  void flush() {
    for (auto& entry : sectors_) {
      std::vector<Sector>& contents = entry.second.contents;
      if (!entry.second.uncertain) contents.erase(contents.begin(), contents.end() - 1);
    }
  }
  void truncate(std::uint64_t size) {
    for (auto entry = sectors_.lower_bound(size / sector_bytes); entry != sectors_.end();)
      entry = sectors_.erase(entry);
  }
  bool uncertain_block(std::uint64_t block) const {
    const std::uint64_t first = block * (block_bytes / sector_bytes);
    for (auto entry = sectors_.lower_bound(first); entry != sectors_.end() && entry->first < first + 8; ++entry) {
      if (entry->second.uncertain) return true;
    }
    return false;
  }
  // Checks what was read at a multiple of sector_bytes. `any`: each version is allowed, and the one that was found is
  // the only one from then on.
  void verify(std::uint64_t offset, Bytes found, bool any) {
    for (std::size_t at = 0; at < found.size(); at += sector_bytes) {
      const std::uint64_t number = (offset + at) / sector_bytes;
      Sector sector;
      std::memcpy(sector.data(), found.data() + at, sector_bytes);
      const auto entry = sectors_.find(number);
      if (entry == sectors_.end()) {
        ASSERT_EQ(sector, Sector{}) << "sector " << number << " was never written";
        continue;
      }
      Versions& versions = entry->second;
      if (!any && !versions.uncertain) {
        ASSERT_TRUE(sector == versions.contents.back()) << "sector " << number << " is not what was written last";
        continue;
      }
      ASSERT_TRUE(std::ranges::find(versions.contents, sector) != versions.contents.end())
          << "sector " << number << " is none of its " << versions.contents.size() << " versions";
      if (any) versions = {{sector}, false};
    }
  }

 private:
  std::map<std::uint64_t, Versions> sectors_;
};

// A volume on a simulated disk, random requests, and the model that they are checked against.
class VolumeRun {
 public:
  static constexpr std::uint64_t size_min = region_bytes;
  static constexpr std::uint64_t size_max = 2 * region_bytes + 16 * block_bytes;

  explicit VolumeRun(std::uint64_t seed) : random_(seed), disk_(seed + 1) {
    VolumeFiles files = open_files();
    EXPECT_TRUE(StoredVolume::format(files, size_max, Uuid{std::byte{1}}, false));
  }

  SimulatedDisk& disk() { return disk_; }
  StoredVolume* volume() { return volume_.get(); }
  std::uint64_t random(std::uint64_t below) { return random_() % below; }

  Result<void> open() {
    volume_.reset();
    Result<std::unique_ptr<StoredVolume>> opened =
        StoredVolume::open("v", open_files(), {.marked_regions_max = 2, .flushes_per_clear = 2});
    if (!opened) return std::unexpected(opened.error());
    volume_ = std::move(*opened);
    return {};
  }
  void crash() { volume_.reset(); }

  // Changes a bit of a random block on the disk, and reads the block: the damage is known then.
  void rot() {
    const std::uint64_t block = random(4) * 4 % (volume_->size() / block_bytes);
    if (damaged_.contains(block)) return;
    const std::uint64_t place = block * block_bytes + random(block_bytes);
    const auto bit = static_cast<unsigned>(random(8));
    disk_.rot(place, bit);
    alignas(file_alignment) std::array<std::byte, block_bytes> memory;
    const Result<void> read = volume_->read(block * block_bytes, memory);
    ASSERT_FALSE(read);
    // The power was cut while the damage was noted, so that it may be known or not: the block has its bytes again.
    if (disk_.failed()) disk_.rot(place, bit);
    damaged_.insert(block);
  }
  bool has_damage() const { return !damaged_.empty(); }

  // One random request. Returns its result.
  Result<void> step() {
    const std::uint64_t kind = random(20);
    if (kind < 9) return write(kind == 0);
    if (kind < 12) return flush();
    if (kind < 14) return zero(true);
    if (kind < 16) return zero(false);
    if (kind < 19) return read();
    return resize();
  }

  // Reads all of the volume after a start. A block that is known to be damaged is an error, or has one of its contents
  // if the power was cut while it was being written.
  void verify_all() {
    const std::uint64_t size = volume_->size();
    ASSERT_TRUE(std::ranges::find(sizes_, size) != sizes_.end()) << size;
    sizes_ = {size};
    model_.truncate(size);
    std::uint64_t damaged = 0;
    alignas(file_alignment) std::array<std::byte, block_bytes> memory;
    for (std::uint64_t block = 0; block < size / block_bytes; ++block) {
      const Result<void> read = volume_->read(block * block_bytes, memory);
      ASSERT_TRUE(read || damaged_.contains(block)) << read.error().text;
      if (read) {
        model_.verify(block * block_bytes, memory, true);
        damaged_.erase(block);
      } else {
        ++damaged;
      }
    }
    std::erase_if(damaged_, [&](std::uint64_t block) { return block >= size / block_bytes; });
    const Result<ScrubReport> scrubbed = volume_->scrub(0, size);
    ASSERT_TRUE(scrubbed);
    EXPECT_EQ(scrubbed->damaged, damaged);
    EXPECT_EQ(scrubbed->blocks, size / block_bytes);
  }
  // Reads each block. A block whose write has failed may be an error. Returns those that are.
  std::set<std::uint64_t> verify_blocks() {
    std::set<std::uint64_t> damaged;
    alignas(file_alignment) std::array<std::byte, block_bytes> memory;
    for (std::uint64_t block = 0; block < volume_->size() / block_bytes; ++block) {
      const Result<void> read = volume_->read(block * block_bytes, memory);
      if (read) {
        model_.verify(block * block_bytes, memory, false);
      } else {
        EXPECT_TRUE(model_.uncertain_block(block)) << read.error().text;
        damaged.insert(block);
      }
    }
    return damaged;
  }

 private:
  VolumeFiles open_files() { return {disk_.open(0), disk_.open(1)}; }

  struct Range {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  Range range(std::uint64_t bytes_max) {
    const std::uint64_t size = volume_->size();
    // Many requests meet in the same places.
    std::uint64_t offset = random(4) == 0 ? random(size) : (random(3) * region_bytes + random(32 * 1024)) % size;
    std::uint64_t bytes = 1 + random(bytes_max);
    if (random(2) == 0) {
      offset -= offset % block_bytes;
      bytes = (bytes + block_bytes - 1) / block_bytes * block_bytes;
    }
    return {offset, std::min(bytes, size - offset)};
  }
  Result<void> finish(const Range& range, Result<void> result) {
    if (!result) {
      model_.fail(range.offset, range.bytes);
      return result;
    }
    const std::uint64_t first = (range.offset + block_bytes - 1) / block_bytes;
    const std::uint64_t end = (range.offset + range.bytes) / block_bytes;
    if (first < end) damaged_.erase(damaged_.lower_bound(first), damaged_.lower_bound(end));
    return result;
  }
  Result<void> write(bool fua) {
    const Range at = range(random(8) == 0 ? 64 * 1024 : 12 * 1024);
    std::vector<std::byte> bytes(at.bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    model_.write(at.offset, at.bytes, [&](std::uint64_t place) { return bytes[place - at.offset]; });
    Result<void> written = volume_->write(at.offset, bytes, fua);
    if (written && fua) model_.flush();
    return finish(at, written);
  }
  Result<void> flush() {
    Result<void> flushed = volume_->flush();
    if (flushed) model_.flush();
    return flushed;
  }
  Result<void> zero(bool discard) {
    Range at = range(random(8) == 0 ? region_bytes + region_bytes / 2 : 12 * 1024);
    const Range asked = at;
    if (discard) {
      const std::uint64_t end = (at.offset + at.bytes) / block_bytes * block_bytes;
      at.offset = (at.offset + block_bytes - 1) / block_bytes * block_bytes;
      at.bytes = end > at.offset ? end - at.offset : 0;
    }
    if (at.bytes > 0) model_.write(at.offset, at.bytes, [](std::uint64_t) { return std::byte{}; });
    return finish(at, discard ? volume_->discard(asked.offset, asked.bytes)
                              : volume_->write_zeroes(asked.offset, asked.bytes, random(2) == 0));
  }
  Result<void> read() {
    const Range at = range(24 * 1024);
    std::vector<std::byte> memory(at.bytes + 2 * sector_bytes);
    const std::uint64_t skipped = (sector_bytes - at.offset % sector_bytes) % sector_bytes;
    const Result<void> read = volume_->read(at.offset, MutableBytes(memory).first(at.bytes));
    if (!read) return read;
    // Whole sectors are compared.
    if (at.bytes < skipped + sector_bytes) return {};
    const std::uint64_t whole = (at.bytes - skipped) / sector_bytes * sector_bytes;
    model_.verify(at.offset + skipped, Bytes(memory).subspan(skipped, whole), false);
    return {};
  }
  Result<void> resize() {
    const std::uint64_t size = size_min + random((size_max - size_min) / block_bytes + 1) * block_bytes;
    const std::uint64_t before = volume_->size();
    sizes_.push_back(size);
    Result<void> resized = volume_->resize(size);
    if (!resized) return resized;
    sizes_ = {size};
    if (size < before) model_.truncate(size);
    damaged_.erase(damaged_.lower_bound(size / block_bytes), damaged_.end());
    if (size != before) model_.flush();
    return resized;
  }

  std::mt19937_64 random_;
  SimulatedDisk disk_;
  std::unique_ptr<StoredVolume> volume_;
  SectorModel model_;
  std::vector<std::uint64_t> sizes_ = {size_max};
  std::set<std::uint64_t> damaged_;  // Blocks that are known to be damaged and were not written whole since.
};

}  // namespace hawser::block
