#pragma once

#include "bench/load/echo.hawser.h"
#include "bench/load/handlers.h"

namespace hawser::bench {

// The server's side of `--handler protobuf`.
class ProtobufEcho final : public ::bench::Echo {
 public:
  Task<Result<::bench::Payload>> Call(Context&, const ::bench::Payload& request) override {
    ::bench::Payload reply;
    // The request is about to be destroyed, so its bytes are swapped instead of copied, as in the peers' servers.
    reply.mutable_data()->swap(*const_cast<::bench::Payload&>(request).mutable_data());
    co_return reply;
  }
  Task<Result<::bench::Ack>> Acknowledge(Context&, const ::bench::Payload& request) override {
    const Ack ack = ack_of(request.data());
    ::bench::Ack reply;
    reply.set_bytes(ack.bytes);
    reply.set_head(ack.head);
    co_return reply;
  }
};

}  // namespace hawser::bench
