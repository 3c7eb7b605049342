#pragma once

#include <cstddef>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/arriving_charge.h"

namespace hawser::transport {

// The memory into which one payload is received, as MessageSink::select_receive_buffer() has selected it. It is memory
// of the transport, which is charged to the account when it is allocated, or memory of the sink, or none if the payload
// is discarded. Memory may also be allocated before the sink is asked. Then the complete payload is copied if the sink
// has selected memory of its own.
class PayloadBuffer {
 public:
  // Without plenty of memory (ReceiveAccount::plenty()), it is allocated in steps, each at most four times as large as
  // the step before. The first step is not larger than first_step_bytes unless more bytes have arrived, because until
  // then the peer has only sent an announcement.
  static constexpr std::size_t first_step_bytes = 4 * 1024;
  static constexpr std::size_t step_factor = 4;

  // Creates an object without a payload.
  PayloadBuffer() noexcept = default;
  // Creates an object for a payload of `size` bytes. A null account refuses nothing. Another account must live until
  // this object is destroyed or release_charge() has been called.
  PayloadBuffer(std::size_t size, hawser::detail::ReceiveAccount* account) noexcept : charge_(account), size_(size) {}

  // Records the result of MessageSink::select_receive_buffer().
  void select(const ReceiveBuffer& selected) noexcept;
  // Ensures that the transport has memory for at least the first `bytes` bytes of the payload. It preserves
  // [0, filled). Returns false, without any change, if the account refuses the memory or there is none.
  [[nodiscard]] bool grow(std::size_t bytes, std::size_t filled);
  // Like grow(), for the whole payload at once. If the sink has selected memory of its own, complete() copies the
  // payload there.
  [[nodiscard]] bool allocate() { return resize(size_, 0); }
  // Like allocate(), for memory that the transport already has: charge() first, then adopt().
  [[nodiscard]] bool charge() noexcept { return charge_.set(size_); }
  void adopt(Buffer memory) noexcept;
  // Brackets each access to memory of the sink (ReceiveBuffer::guard). enter() returns false, and has discarded the
  // payload, if the memory has been withdrawn.
  [[nodiscard]] bool enter() noexcept;
  void leave() noexcept {
    if (std::exchange(entered_, false)) guard_->leave();
  }

  // Replaces the transport's memory by other memory of the same size, without the contents.
  void replace();
  // Discards the payload and releases the transport's memory.
  void discard() noexcept;
  // See Connection::revoke_receive_buffer().
  void revoke(const std::byte* memory) noexcept;
  bool revokes(const std::byte* memory) const noexcept {
    return memory != nullptr && ((given_ && data_ == memory) || wanted_ == memory);
  }
  void release_charge() noexcept { charge_.reset(); }

  std::size_t size() const noexcept { return size_; }
  bool discarded() const noexcept { return discarded_; }
  // Memory that receives the payload. Null while there is no memory and after the payload has been discarded.
  std::byte* data() const noexcept { return data_; }
  // Bytes at data().
  std::size_t room() const noexcept { return room_; }
  // Returns whether data() is memory of the sink.
  bool given() const noexcept { return given_; }
  // The transport's memory; empty if there is none.
  const Buffer& own() const noexcept { return own_; }

  // Must be called when the payload is complete or discarded. Describes the payload in `message` and ends the charge:
  // from now on whoever keeps the payload is charged.
  void complete(Message& message) noexcept;

 private:
  bool resize(std::size_t room, std::size_t filled);

  ArrivingCharge charge_;
  Buffer own_;
  std::byte* data_ = nullptr;
  std::byte* wanted_ = nullptr;  // Memory of the sink, while the payload is received into own_.
  std::size_t size_ = 0;
  std::size_t room_ = 0;
  ReceiveGuard* guard_ = nullptr;  // Guards the memory of the sink; null if it needs no guard.
  bool entered_ = false;
  bool given_ = false;
  bool discarded_ = false;
};

}  // namespace hawser::transport
