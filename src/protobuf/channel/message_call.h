#pragma once

#include <coroutine>
#include <cstring>
#include <string>
#include <utility>

#include "hawser/call.h"
#include "hawser/detail/call_channel.h"
#include "protobuf/client_call.h"

namespace hawser::pb {

// A call whose argument and result are bytes of messages.
class MessageCall : public detail::CallOperation {
 public:
  MessageCall(detail::ClientLink& link, const std::string& name, const Buffer& body, const CallOptions& options)
      : CallOperation(link), body_(body) {
    request_.method = codec::fnv1a32(name);
    request_.signature = message_signature();
    request_.name = name;
    request_.size.body = body.size();
    request_.options = &options;
  }
  ~MessageCall() { withdraw(); }

  void measure() noexcept override {}
  void encode(std::byte* body, ConstBuffer*) override {
    if (!body_.empty()) std::memcpy(body, body_.data(), body_.size());
  }
  void decode(const detail::Received& reply) override { reply_ = copy_of(reply); }

  // Sends the request and waits for the end of the call.
  auto executed() noexcept {
    struct Awaiter {
      MessageCall& call;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> waiting) const {
        call.start();
        return call.wait(waiting);
      }
      void await_resume() const noexcept { call.resumed(); }
    };
    return Awaiter{*this};
  }
  Result<RawReply> take() {
    if (error()) return fail(std::move(*error()));
    return std::move(reply_);
  }

 protected:
  static RawReply copy_of(const detail::Received& reply) {
    RawReply copy;
    copy.body = Buffer::keep(reply.head_block, reply.body.data(), reply.body.size());
    if (!reply.attachment.empty()) {
      Block* const block = reply.attachment.data() >= reply.body.data() &&
                                   reply.attachment.data() <= reply.body.data() + reply.body.size()
                               ? reply.head_block
                               : reply.payload_block;
      copy.attachment = Buffer::keep(block, reply.attachment.data(), reply.attachment.size());
    }
    copy.metadata = reply.metadata.copy();
    return copy;
  }

  const Buffer& body_;
  RawReply reply_;
};

}  // namespace hawser::pb
