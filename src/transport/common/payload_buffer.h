#pragma once

#include <cstddef>

#include "hawser/bytes.h"
#include "hawser/transport/connection.h"
#include "transport/common/arriving_charge.h"

namespace hawser::transport {

// The memory that one payload is received into, as MessageSink::select_receive_buffer() has selected it: memory of the
// transport's, which the account is charged for when it is allocated; memory of the sink's; or none, and the payload is
// discarded. Memory may also be allocated before the sink is asked: then the payload is copied in the end if the sink
// wants it elsewhere.
class PayloadBuffer {
 public:
  // Without plenty of memory (ReceiveAccount::plenty()), it is allocated in steps, each of which is at most four times
  // the one before. The first step is no longer than this, unless more has arrived: only an announcement has paid for
  // it.
  static constexpr std::size_t first_step_bytes = 4 * 1024;
  static constexpr std::size_t step_factor = 4;

  // No payload.
  PayloadBuffer() noexcept = default;
  // Of `size` bytes. A null account refuses nothing; else the account outlives this, or release_charge().
  PayloadBuffer(std::size_t size, hawser::detail::ReceiveAccount* account) noexcept : charge_(account), size_(size) {}

  // What the sink said.
  void select(const ReceiveBuffer& selected) noexcept;
  // The transport's memory for the first `bytes` bytes at least, of which [0, filled) stay; nothing if there is room
  // already. False: the account refuses it, or there is none, and nothing has changed.
  [[nodiscard]] bool grow(std::size_t bytes, std::size_t filled);
  // The same for all of the payload at once, also if the sink has given memory: then the payload is copied there.
  [[nodiscard]] bool allocate() { return resize(size_, 0); }
  // As allocate(), for memory that the transport has: charge() first, then adopt().
  [[nodiscard]] bool charge() noexcept { return charge_.set(size_); }
  void adopt(Buffer memory) noexcept;
  // Replaces the transport's memory by other memory of the same size, without the contents.
  void replace();
  // The payload is needed no more. The transport's memory is released.
  void discard() noexcept;
  // Connection::revoke_receive_buffer().
  void revoke(const std::byte* memory) noexcept;
  bool revokes(const std::byte* memory) const noexcept {
    return memory != nullptr && ((given_ && data_ == memory) || wanted_ == memory);
  }
  void release_charge() noexcept { charge_.reset(); }

  std::size_t size() const noexcept { return size_; }
  bool discarded() const noexcept { return discarded_; }
  // Where the payload is received; null while there is no memory, and once it is discarded.
  std::byte* data() const noexcept { return data_; }
  // Of data().
  std::size_t room() const noexcept { return room_; }
  // data() is the sink's.
  bool given() const noexcept { return given_; }
  // The transport's memory; empty if there is none.
  const Buffer& own() const noexcept { return own_; }

  // The payload is complete, or discarded: describes it in the message that is delivered. Whoever keeps it pays from
  // now on.
  void complete(Message& message) noexcept;

 private:
  bool resize(std::size_t room, std::size_t filled);

  ArrivingCharge charge_;
  Buffer own_;
  std::byte* data_ = nullptr;
  std::byte* wanted_ = nullptr;  // The sink's, while the payload is received into own_.
  std::size_t size_ = 0;
  std::size_t room_ = 0;
  bool given_ = false;
  bool discarded_ = false;
};

}  // namespace hawser::transport
