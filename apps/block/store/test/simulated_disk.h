#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "block/store/file.h"
#include "block/store/layout.h"
#include "block/store/store_error.h"

namespace hawser::block {

using Sector = std::array<std::byte, sector_bytes>;

// Files on a disk that loses power or fails, by a seed. One thread.
class SimulatedDisk {
 public:
  explicit SimulatedDisk(std::uint64_t seed) : random_(seed) {}

  // The operation with this number, counted from 1, fails with the errno value. `forever`: all later ones too, as after
  // a loss of power.
  void fail_at(std::uint64_t operation, int number, bool forever) {
    fail_at_ = operation;
    number_ = number;
    forever_ = forever;
  }
  void fail_never() { fail_at_ = 0; }
  std::uint64_t operations() const { return operations_; }
  bool failed() const { return fail_at_ != 0 && operations_ >= fail_at_; }

  // The power is cut and comes back: what was not synced is kept, lost, or kept in part, sector by sector.
  void cut() {
    fail_never();
    for (Contents& file : files_) file.cut(random_);
  }
  // The disk has no free space: what needs some fails with ENOSPC. `copies`: each write needs some, as on a file system
  // that writes copies.
  void fill(bool copies) { full_ = copies ? Full::copies : Full::keeps; }
  void free_space() { full_ = Full::no; }
  // Changes a bit of the data on the medium.
  void rot(std::uint64_t offset, unsigned bit) {
    for (std::vector<std::byte>* bytes : {&files_[0].current, &files_[0].durable}) {
      if (offset < bytes->size()) (*bytes)[offset] ^= std::byte{1} << bit;
    }
  }
  std::vector<std::byte>& bytes(std::size_t file) { return files_[file].current; }
  std::unique_ptr<File> open(std::size_t file);

 private:
  friend class SimulatedFile;
  static constexpr std::uint64_t page_bytes = 4096;
  enum class Full : std::uint8_t { no, keeps, copies };
  struct Contents {
    std::vector<std::byte> durable;
    std::vector<std::byte> current;
    std::map<std::uint64_t, std::vector<Sector>> pending;  // All contents since the last sync.
    std::vector<std::uint64_t> sizes;
    std::set<std::uint64_t> space;  // Pages that have space.

    bool has_space(std::uint64_t offset, std::uint64_t bytes) const {
      for (std::uint64_t page = offset / page_bytes; page * page_bytes < offset + bytes; ++page) {
        if (!space.contains(page)) return false;
      }
      return true;
    }
    void claim(std::uint64_t offset, std::uint64_t bytes) {
      for (std::uint64_t page = offset / page_bytes; page * page_bytes < offset + bytes; ++page) space.insert(page);
    }
    void free(std::uint64_t offset, std::uint64_t bytes) {
      const std::uint64_t end = (offset + bytes) / page_bytes;
      space.erase(space.lower_bound((offset + page_bytes - 1) / page_bytes), space.lower_bound(end));
    }
    void store_sector(std::uint64_t sector, const Sector& contents) {
      const std::uint64_t offset = sector * sector_bytes;
      if (offset < current.size()) {
        std::memcpy(current.data() + offset, contents.data(), std::min(sector_bytes, current.size() - offset));
      }
      pending[sector].push_back(contents);
    }
    Sector sector(std::uint64_t number) const {
      Sector found{};
      const std::uint64_t offset = number * sector_bytes;
      if (offset < current.size()) {
        std::memcpy(found.data(), current.data() + offset, std::min(sector_bytes, current.size() - offset));
      }
      return found;
    }
    void resize(std::uint64_t bytes) {
      const std::uint64_t first = (bytes + sector_bytes - 1) / sector_bytes;
      for (std::uint64_t number = first; number * sector_bytes < current.size(); ++number) {
        if (sector(number) != Sector{} || pending.contains(number)) pending[number].push_back(Sector{});
      }
      current.resize(bytes);
      if (bytes % sector_bytes != 0) pending[bytes / sector_bytes].push_back(sector(bytes / sector_bytes));
      sizes.push_back(bytes);
    }
    void sync() {
      durable.resize(current.size());
      for (const auto& entry : pending) copy_sector(entry.first, current, durable);
      pending.clear();
      sizes.clear();
    }
    static void copy_sector(std::uint64_t number, const std::vector<std::byte>& from, std::vector<std::byte>& to) {
      const std::uint64_t offset = number * sector_bytes;
      const std::uint64_t end = std::min<std::uint64_t>({offset + sector_bytes, from.size(), to.size()});
      if (offset < end) std::memcpy(to.data() + offset, from.data() + offset, end - offset);
    }
    void cut(std::mt19937_64& random) {
      const std::uint64_t mode = random() % 4;  // 0: all is lost, 1: all is kept, otherwise some.
      if (mode == 1) return sync();
      if (mode != 0 && !sizes.empty() && random() % 2 == 0) durable.resize(sizes[random() % sizes.size()]);
      for (const auto& [number, versions] : pending) {
        const std::uint64_t offset = number * sector_bytes;
        if (mode == 0 || offset >= durable.size() || random() % 2 == 0) continue;
        const Sector& kept = versions[random() % versions.size()];
        std::memcpy(durable.data() + offset, kept.data(), std::min(sector_bytes, durable.size() - offset));
      }
      current.resize(durable.size());
      for (const auto& entry : pending) copy_sector(entry.first, durable, current);
      pending.clear();
      sizes.clear();
    }
  };

  bool fails() {
    ++operations_;
    return fail_at_ != 0 && (operations_ == fail_at_ || (forever_ && operations_ > fail_at_));
  }

  std::mt19937_64 random_;
  std::array<Contents, 2> files_;
  std::uint64_t operations_ = 0;
  std::uint64_t fail_at_ = 0;
  int number_ = 0;
  bool forever_ = false;
  Full full_ = Full::no;
};

class SimulatedFile final : public File {
 public:
  SimulatedFile(SimulatedDisk& disk, std::size_t file) : disk_(disk), file_(disk.files_[file]) {}

  Result<void> read(std::uint64_t offset, MutableBytes into) override {
    if (disk_.fails()) return error();
    const std::size_t there =
        offset < file_.current.size() ? std::min<std::uint64_t>(into.size(), file_.current.size() - offset) : 0;
    if (there > 0) std::memcpy(into.data(), file_.current.data() + offset, there);
    std::ranges::fill(into.subspan(there), std::byte{});
    return {};
  }
  Result<void> write(std::uint64_t offset, Bytes bytes) override {
    if (disk_.full_ == SimulatedDisk::Full::copies || !has_space(offset, bytes.size())) return no_space();
    Result<void> stored = store(offset, bytes.size(), [&](std::uint64_t at) { return bytes[at - offset]; });
    if (stored) file_.claim(offset, bytes.size());
    return stored;
  }
  Result<void> zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) override {
    if (deallocate) file_.free(offset, bytes);
    bytes =
        std::min<std::uint64_t>(bytes, file_.current.size() - std::min<std::uint64_t>(offset, file_.current.size()));
    return store(offset, bytes, [](std::uint64_t) { return std::byte{}; });
  }
  Result<void> sync() override {
    if (disk_.fails()) return error();
    file_.sync();
    return {};
  }
  Result<void> allocate(std::uint64_t offset, std::uint64_t bytes) override {
    if (disk_.fails()) return error();
    if (!has_space(offset, bytes)) return no_space();
    file_.claim(offset, bytes);
    if (offset + bytes > file_.current.size()) file_.resize(offset + bytes);
    return {};
  }
  Result<void> resize(std::uint64_t bytes) override {
    if (disk_.fails()) return error();
    file_.resize(bytes);
    return {};
  }
  Result<std::uint64_t> size() override {
    if (disk_.fails()) return std::unexpected(error().error());
    return file_.current.size();
  }
  Result<std::uint64_t> allocated() override { return file_.current.size(); }

 private:
  bool has_space(std::uint64_t offset, std::uint64_t bytes) const {
    return disk_.full_ == SimulatedDisk::Full::no || file_.has_space(offset, bytes);
  }
  static std::unexpected<Error> no_space() { return system_fail(ENOSPC, "use the simulated disk"); }
  std::unexpected<Error> error() const { return system_fail(disk_.number_, "use the simulated disk"); }

  // A write that fails has stored some of its sectors.
  template <class Byte>
  Result<void> store(std::uint64_t offset, std::uint64_t bytes, Byte&& byte) {
    const bool failed = disk_.fails();
    if (failed && disk_.operations_ != disk_.fail_at_) return error();
    const std::uint64_t end = offset + bytes;
    if (!failed && end > file_.current.size()) {
      file_.current.resize(end);
      file_.sizes.push_back(end);
    }
    for (std::uint64_t number = offset / sector_bytes; number * sector_bytes < end; ++number) {
      if (failed && disk_.random_() % 2 == 0) continue;
      Sector contents = file_.sector(number);
      const std::uint64_t begin = number * sector_bytes;
      for (std::uint64_t at = std::max(begin, offset); at < std::min(begin + sector_bytes, end); ++at) {
        contents[at - begin] = byte(at);
      }
      file_.store_sector(number, contents);
    }
    if (failed) return error();
    return {};
  }

  SimulatedDisk& disk_;
  SimulatedDisk::Contents& file_;
};

inline std::unique_ptr<File> SimulatedDisk::open(std::size_t file) {
  return std::make_unique<SimulatedFile>(*this, file);
}

}  // namespace hawser::block
