#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "hawser/bytes.h"

namespace hawser::detail {

// The pieces of one message. A small number of pieces is stored without an allocation. The owner writes the `count`
// pieces of the constructor to data(), and may push() one more behind them.
class ConstBuffers {
 public:
  static constexpr std::size_t inline_max = 8;

  explicit ConstBuffers(std::size_t count) : size_(count) {
    if (count + 1 > inline_max) many_ = new ConstBuffer[count + 1];
  }
  ConstBuffers(const ConstBuffers&) = delete;
  ConstBuffers& operator=(const ConstBuffers&) = delete;
  ~ConstBuffers() { delete[] many_; }

  ConstBuffer* data() noexcept { return many_ != nullptr ? many_ : few_.data(); }
  void push(ConstBuffer piece) noexcept { data()[size_++] = piece; }
  std::span<const ConstBuffer> span() noexcept { return {data(), size_}; }

 private:
  std::size_t size_;
  std::array<ConstBuffer, inline_max> few_;
  ConstBuffer* many_ = nullptr;  // Null while few_ has room.
};

}  // namespace hawser::detail
