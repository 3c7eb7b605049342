#pragma once

#include <utility>

#include "transport/network.h"
#include "transport/tcp/resolver.h"

namespace hawser::transport {

// Streams over TCP, IPv4 and IPv6, by "host:port", and over Unix sockets, by "unix:/path" and "unix:@name".
class TcpNetwork final : public Network {
 public:
  explicit TcpNetwork(ResolverOptions resolving = {}) : names_(std::move(resolving)) {}

  // Resolves a name as getaddrinfo() does, which blocks.
  Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) override;
  // A name is resolved on the loop and within `timeout`; of several addresses the first that answers is taken (RFC
  // 8305).
  Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) override;

 private:
  NameService names_;
};

}  // namespace hawser::transport
