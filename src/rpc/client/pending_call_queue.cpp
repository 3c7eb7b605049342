#include "rpc/client/pending_call_queue.h"

#include <string>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::rpc {

using detail::CallOperation;

void PendingCallQueue::add(CallOperation& operation, bool unsent, Time deadline) {
  const std::uint32_t id = next_id_++;
  waiting_.emplace(id, QueuedCall{&operation, unsent});
  operation.begin(*this, id, deadline);
}

void PendingCallQueue::keep(CallOperation& operation, bool unsent) {
  operation.receive_buffer = nullptr;
  if (!unsent) operation.set_maybe_executed();
  add(operation, unsent, operation.deadline());
}

void PendingCallQueue::start(CallOperation& operation) {
  const CallOperation::Request& request = operation.request();
  // Such calls cannot wait: a stream belongs to a connection, and a request that is sent later needs its arguments
  // then.
  if (request.streams || !request.arguments_last) {
    return operation.complete(
        loop_, Error::of_transport(ErrorCode::not_sent, "the connection is moving to another transport: try again"));
  }
  if (waiting_.size() >= calls_max_) {
    return operation.complete(
        loop_,
        Error::of_call(ErrorCode::overloaded, "the connection is moving to another transport, and its queue has " +
                                                  count_text(calls_max_, "call") + " already (calls_in_flight_max)"));
  }
  add(operation, true, call_deadline(loop_, request, call_timeout_));
}

void PendingCallQueue::cancel(std::uint32_t call, const Error& error) {
  const auto at = waiting_.find(call);
  if (at == waiting_.end()) return;
  CallOperation& operation = *at->second.operation;
  waiting_.erase(at);
  operation.complete(loop_, error);
}

void PendingCallQueue::send_all(ClientSession& session) {
  // Completing an operation only queues its coroutine, so no call is added during the loop.
  for (const auto& [id, waiting] : std::exchange(waiting_, {})) session.restart(*waiting.operation);
}

void PendingCallQueue::fail_all(const Error& reason) {
  for (const auto& [id, waiting] : std::exchange(waiting_, {})) {
    waiting.operation->complete(loop_, ended_call(waiting.unsent, reason));
  }
}

}  // namespace hawser::rpc
