#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hawser {

// Memory of another process of this machine, mapped for reading. Its file is sealed against shrinking, so that reading
// it is safe, whatever the other process does; the content may change at any time.
class SealedMapping {
 public:
  // Maps the first `bytes` of the file that the process `process` has under `descriptor`. Null if that is not a regular
  // file, has no seal against shrinking, is shorter, or may not be opened.
  static std::unique_ptr<const SealedMapping> open(std::int32_t process, std::int32_t descriptor, std::size_t bytes);
  SealedMapping(const SealedMapping&) = delete;
  SealedMapping& operator=(const SealedMapping&) = delete;
  ~SealedMapping();

  const std::byte* data() const noexcept { return data_; }

 private:
  SealedMapping(const std::byte* data, std::size_t bytes) noexcept : data_(data), bytes_(bytes) {}
  const std::byte* data_;
  const std::size_t bytes_;
};

}  // namespace hawser
