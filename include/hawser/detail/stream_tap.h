#pragma once

#include <span>

#include "hawser/bytes.h"

namespace hawser::detail {

// Sees the items of one side of a call's streams, for recordings. Loop's thread only.
class StreamTap {
 public:
  // The peer has sent an item, or has ended its stream.
  virtual void on_received(Bytes body, Bytes payload) noexcept = 0;
  virtual void on_received_end() noexcept = 0;
  // This side sends an item. The pieces belong to it.
  virtual void on_sent(Bytes body, std::span<const ConstBuffer> pieces) noexcept = 0;

 protected:
  ~StreamTap() = default;

 private:
  friend class StreamCore;
  StreamTap* next_ = nullptr;  // In the list of the core.
};

}  // namespace hawser::detail
