#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/service.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <vector>

#include "hawser/background_loops.h"
#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/error.h"
#include "hawser/metadata.h"
#include "hawser/protobuf.h"
#include "hawser/protobuf_controller.h"

namespace hawser::pb {

// The signature of methods whose argument and result are messages.
std::uint32_t message_signature() noexcept;

// The reply of a call before it is decoded.
struct RawReply {
  Buffer body;
  Buffer attachment;
  Metadata metadata;
};

// One call of a client. The controller, the channel's work and CallIds share it. Any thread.
struct ClientCall : std::enable_shared_from_this<ClientCall> {
  enum class State : std::uint8_t { idle, running, ending, ended, joined };  // ending: the result is being written.

  // The call of `controller`, which must be a Controller, begins. Null if it is none: `done` has run.
  static std::shared_ptr<ClientCall> start(google::protobuf::RpcController* controller,
                                           google::protobuf::Message* response, google::protobuf::Closure* done);
  // Ends the call if there is no `done` and this thread runs a loop, which must not wait. True if it has ended.
  bool refuse_to_block(const google::protobuf::Closure* done);
  // False: the call has begun before.
  bool begin(Controller* of, google::protobuf::Message* into, google::protobuf::Closure* closure);
  // From now on cancel() reaches the loop. Before, the call must have begun.
  void run_on(const std::shared_ptr<BackgroundLoops>& background, Loop& on);
  // From now on cancel() calls `cancel_parts`, until the call has ended. For a call that other calls make up.
  void made_of(std::function<void()> cancel_parts);
  bool cancelled() const;
  bool running() const;
  // Ends the call, once, and runs `done`.
  void end(Result<RawReply> reply, const codec::DecodeLimits& limits, const MessageFacts& facts);
  void refuse(Error error);  // Ends a call that cannot begin.
  // Ends a call that `parts` made up. `merge` fills the response and its attachment, and is not called after unlink().
  // It may cancel the call.
  void end_merged(const std::vector<std::shared_ptr<const Controller>>& parts,
                  const std::function<std::optional<Error>(google::protobuf::Message&, Attachment&)>& merge);
  void cancel();
  void wait();  // Until the state is joined.
  // The controller is destroyed or reset: cancels the call, whose end will not use the controller or the response.
  // Waits while another thread writes them.
  void unlink();

  std::stop_source stop;  // Stopped on the loop's thread.
  int retried = 0;        // Loop's thread, until the call has ended.
  bool backup_sent = false;

 private:
  template <class Write>
  void end_with(Write write);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::idle;
  bool cancelled_ = false;
  Controller* controller_ = nullptr;  // Null after unlink().
  google::protobuf::Message* response_ = nullptr;
  google::protobuf::Closure* done_ = nullptr;
  std::shared_ptr<BackgroundLoops> loops_;  // While the call runs.
  Loop* loop_ = nullptr;
  std::function<void()> cancel_parts_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace hawser::pb
