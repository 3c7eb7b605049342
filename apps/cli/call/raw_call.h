#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/call/method.h"
#include "hawser/detail/call_channel.h"
#include "hawser/reply.h"
#include "hawser/task.h"

namespace hawser::cli {

// A call whose arguments are bytes. Used on the loop of its client. Its address must not change.
class RawCall final : public detail::CallOperation {
 public:
  struct Answer {
    std::string body;
    std::string payload;
    std::string attachment = {};
  };

  // `method` must stay valid until the call has ended.
  RawCall(detail::ClientLink& link, const Method& method, std::string body, CallOptions options);
  // With large values of the arguments beside the body.
  RawCall(detail::ClientLink& link, const Method& method, std::string body, std::string payload, CallOptions options);
  ~RawCall() { withdraw(); }

  // Sends the request. Call it once.
  void send() { start(); }
  // The answer; after send(). Call it once.
  Task<Result<Answer>> answer();
  // Sends an item of the caller's stream. Fails if the call has ended.
  Task<Result<void>> write(std::string item);
  // The same with large values beside the body. The memory must stay valid until the task has ended.
  Task<Result<void>> write(Bytes body, Bytes payload);
  void end_writing();
  // Returns the next item of the handler, or nothing after the last one.
  Task<Result<std::optional<Answer>>> read();

 private:
  struct Ended;
  void measure() noexcept override {
    request_.size = {.body = body_.size(), .payload = payload_.size(), .pieces = payload_.empty() ? 0U : 1U};
  }
  void encode(std::byte* body, ConstBuffer* pieces) override;
  void decode(const detail::Received& reply) override;
  // The stream; kept while it is read after the end of the call.
  detail::StreamCore* kept_stream();

  const std::string body_;
  const std::string payload_;
  const CallOptions options_;
  Answer answer_;
  std::shared_ptr<detail::StreamCore> stream_kept_;
};

}  // namespace hawser::cli
