#pragma once

#include <cstdint>

#include "block/store/memory_file.h"

namespace hawser::block {

// A file in memory, for tests that change some of its operations.
class ForwardingFile : public File {
 public:
  Result<void> read(std::uint64_t offset, MutableBytes into) override { return file_.read(offset, into); }
  Result<void> write(std::uint64_t offset, Bytes bytes) override { return file_.write(offset, bytes); }
  Result<void> sync() override { return file_.sync(); }
  Result<void> allocate(std::uint64_t offset, std::uint64_t bytes) override { return file_.allocate(offset, bytes); }
  Result<void> zero(std::uint64_t offset, std::uint64_t bytes, bool deallocate) override {
    return file_.zero(offset, bytes, deallocate);
  }
  Result<void> resize(std::uint64_t bytes) override { return file_.resize(bytes); }
  Result<std::uint64_t> size() override { return file_.size(); }
  Result<std::uint64_t> allocated() override { return file_.allocated(); }

 private:
  MemoryFile file_;
};

}  // namespace hawser::block
