#pragma once

#include <stop_token>
#include <utility>

#include "hawser/detail/receive_account.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/task.h"
#include "protocol/grpc/compression.h"

namespace hawser::protocol::grpc {

// Decompresses messages of a connection on threads of the offload pool: a few KiB may become megabytes, which take
// milliseconds. Loop's thread only. When it ends, tasks that wait for a message end where they are suspended.
class Unpacker {
 public:
  // `connection`: offloaded work takes turns by it.
  Unpacker(Loop& loop, const void* connection) noexcept : loop_(loop), connection_(connection) {}

  // Returns the decompressed message. A task of spawn() awaits it. `charge` pays for both messages and is released
  // before that. If the task ends earlier, the loop's budget pays until a thread has ended the work. A null `account`:
  // not counted.
  Task<Result<Buffer>> unpack(PackedMessage packed, const detail::ReceiveAccount* account = nullptr,
                              detail::ReceiveCharge charge = {});
  // The task handles its errors.
  void spawn(Task<void> task) { tasks_.spawn(std::move(task)); }
  bool idle() const noexcept { return tasks_.empty(); }
  // Drops messages for which no thread has begun to work.
  void stop() noexcept { stop_.request_stop(); }

 private:
  Loop& loop_;
  const void* const connection_;
  std::stop_source stop_ = std::stop_source(std::nostopstate);  // Gets a state when the first message needs one.
  Scope tasks_;
};

}  // namespace hawser::protocol::grpc
