#pragma once

#include <memory>

#include "hawser/detail/stream_core.h"
#include "hawser/stream.h"

namespace hawser::detail {

// The stream of a Reader or a Writer; null if it belongs to no call.
struct StreamAccess {
  template <class T>
  static const std::shared_ptr<StreamCore>& core(const Reader<T>& reader) noexcept {
    return reader.core_;
  }
  template <class T>
  static const std::shared_ptr<StreamCore>& core(const Writer<T>& writer) noexcept {
    return writer.core_;
  }
};

}  // namespace hawser::detail
