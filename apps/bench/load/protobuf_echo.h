#pragma once

#include "bench/load/echo.hawser.h"

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
};

}  // namespace hawser::bench
