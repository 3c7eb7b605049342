#pragma once

#include "bench/load/echo.hawser.h"

namespace hawser::bench {

// The server's side of `--handler protobuf`.
class ProtobufEcho final : public ::bench::Echo {
 public:
  Task<Result<::bench::Payload>> Call(Context&, const ::bench::Payload& request) override { co_return request; }
};

}  // namespace hawser::bench
