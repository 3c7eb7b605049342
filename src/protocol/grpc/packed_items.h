#pragma once

#include <cstdint>
#include <vector>

#include "hawser/detail/receive_account.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "protocol/grpc/compression.h"
#include "protocol/grpc/unpacker.h"

namespace hawser::protocol::grpc {

class Http2ServerSession;

// The compressed items of streams that become long, at a server: other threads decompress them. An item that finds no
// memory waits for the end of a conversion, or shortly for handlers that read other items (docs/decisions/0072). A part
// of its session, which ends after it. Loop's thread only.
class PackedItems {
 public:
  explicit PackedItems(Http2ServerSession& session) noexcept;

  // `charge` pays for the item and for its result.
  void unpack(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge);
  // As MachineSink::waits_for_memory().
  bool waits_for_memory();

  bool idle() const noexcept { return unpacker_.idle(); }
  void stop() noexcept { unpacker_.stop(); }

 private:
  Task<void> unpack_one(std::uint32_t call, PackedMessage packed, detail::ReceiveCharge charge);
  Task<void> release_when_memory_returns();
  void release();
  std::vector<std::uint32_t> waiting() const;

  Http2ServerSession& session_;
  std::uint32_t last_slot_ = 0;  // The slot of the last call whose item went on: the slots behind it are next.
  bool awaits_memory_ = false;   // release_when_memory_returns() runs.
  Time began_{};                 // The time at which this wait began.
  Unpacker unpacker_;            // Ends first.
};

}  // namespace hawser::protocol::grpc
