#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "hawser/bytes.h"

namespace hawser::detail {

// The pieces of one message. A small number of pieces is stored without an allocation. push() adds the last one.
class ConstBuffers {
 public:
  static constexpr std::size_t inline_max = 8;

  explicit ConstBuffers(std::size_t count) : size_(count) {
    if (count + 1 > inline_max) many_ = std::make_unique<ConstBuffer[]>(count + 1);
  }
  ConstBuffer* data() noexcept { return many_ ? many_.get() : few_.data(); }
  // Adds one piece behind those of the constructor.
  void push(ConstBuffer piece) noexcept { data()[size_++] = piece; }
  std::span<const ConstBuffer> span() noexcept { return {data(), size_}; }

 private:
  std::size_t size_;
  std::array<ConstBuffer, inline_max> few_;
  std::unique_ptr<ConstBuffer[]> many_;
};

}  // namespace hawser::detail
