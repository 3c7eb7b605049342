#include "hawser/transport/protect.h"

#include <utility>

#include "transport/stream_security.h"

namespace hawser::transport {

Result<void> prepare(ServerSecurity& security) { return security.prepare(); }

std::string refusal_of_plain(const ServerSecurity& security, const Stream& stream) {
  return security.refusal_of_plain(stream);
}

std::unique_ptr<Stream> protect(ServerSecurity& security, Loop& loop, std::unique_ptr<Stream> stream, Bytes first) {
  return security.protect(loop, std::move(stream), first, {});
}

}  // namespace hawser::transport
