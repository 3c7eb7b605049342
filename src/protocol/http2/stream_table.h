#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hawser/time.h"

namespace hawser::protocol::http2 {

// The streams of a connection by slot. `Stream` is an Http2Stream. A stream is never destroyed before the table: it is
// used again, with another generation in its Http2Stream::call.
template <class Stream>
class StreamTable {
 public:
  static constexpr std::size_t slots_max = 65'535;

  explicit StreamTable(std::size_t streams_max) noexcept : streams_max_(std::min(streams_max, slots_max)) {}

  // Returns null if the stream with this `call` is not in use any more.
  Stream* find(std::uint32_t call) const noexcept {
    const std::size_t slot = call & 0xFFFF;
    if (slot >= streams_.size()) return nullptr;
    Stream* const stream = streams_[slot].get();
    return stream->call == call && in_use(*stream) ? stream : nullptr;
  }
  std::size_t used() const noexcept { return used_; }
  // Calls `use` for each stream in use. It may end streams, and begin some.
  template <class Use>
  void for_each(Use use) const {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (in_use(*streams_[i])) use(*streams_[i]);
    }
  }
  // Returns a stream that is open from now on, or null if all slots are in use.
  Stream* take(Time now) {
    if (free_slots_.empty() && !add_slot()) return nullptr;
    Stream& stream = *streams_[free_slots_.back()];
    free_slots_.pop_back();
    stream.call += 0x10000;
    if ((stream.call >> 16) == 0) stream.call += 0x10000;  // 0 is not a generation.
    stream.open = true;
    stream.opened = now;
    ++used_;
    return &stream;
  }
  // The stream, which is reset, can be used again.
  void put_back(const Stream& stream) noexcept {
    free_slots_.push_back(static_cast<std::uint16_t>(stream.call & 0xFFFF));
    --used_;
  }

 private:
  static bool in_use(const Stream& stream) noexcept { return stream.open || stream.busy; }
  bool add_slot() {
    const std::size_t slot = streams_.size();
    if (slot >= streams_max_) return false;
    free_slots_.reserve(slot + 1);  // So that put_back() needs no memory.
    streams_.push_back(std::make_unique<Stream>());
    streams_.back()->call = static_cast<std::uint32_t>(slot);
    free_slots_.push_back(static_cast<std::uint16_t>(slot));
    return true;
  }

  const std::size_t streams_max_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::uint16_t> free_slots_;
  std::size_t used_ = 0;
};

}  // namespace hawser::protocol::http2
