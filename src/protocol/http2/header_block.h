#pragma once

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hawser::protocol::http2 {

// The fields of a header block that is about to be sent. The usual few need no allocation. nghttp2 copies what is not a
// literal when it gets the block.
class HeaderBlock {
 public:
  void add(std::string_view name, std::string_view value) { push(name, value, NGHTTP2_NV_FLAG_NONE); }
  // The name is a literal.
  void add_named(std::string_view name, std::string_view value) { push(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME); }
  // Both are literals.
  void add_literal(std::string_view name, std::string_view value) {
    push(name, value, NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE);
  }
  // The block keeps the value.
  void add_owned(std::string_view name, std::string value) {
    owned_.push_back(std::make_unique<std::string>(std::move(value)));
    add(name, *owned_.back());
  }

  const nghttp2_nv* data() const noexcept { return many_.empty() ? few_.data() : many_.data(); }
  std::size_t size() const noexcept { return count_; }

 private:
  static std::uint8_t* raw(std::string_view text) noexcept {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  }
  void push(std::string_view name, std::string_view value, std::uint8_t flags) {
    const nghttp2_nv one{raw(name), raw(value), name.size(), value.size(), flags};
    if (count_ < few_.size()) {
      few_[count_++] = one;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(one);
    ++count_;
  }

  std::array<nghttp2_nv, 12> few_;
  std::vector<nghttp2_nv> many_;
  std::size_t count_ = 0;
  std::vector<std::unique_ptr<std::string>> owned_;
};

}  // namespace hawser::protocol::http2
