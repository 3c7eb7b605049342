#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "hawser/detail/stream_core.h"

namespace hawser::rpc {

// A detail::CallOperation may be one, in a protocol whose calls can open several streams. The first stream is that of
// the operation. The call ends when all of them have ended. Loop's thread only.
class FurtherStreams {
 public:
  using Cores = std::vector<std::shared_ptr<detail::StreamCore>>;

  // The number of streams in addition to the first. Constant.
  virtual std::size_t further_streams() const noexcept = 0;
  // The session has sent the request. `cores` has one element for each further stream.
  virtual void set_further(Cores cores) noexcept = 0;

 protected:
  ~FurtherStreams() = default;
};

}  // namespace hawser::rpc
