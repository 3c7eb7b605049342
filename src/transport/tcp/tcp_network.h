#pragma once

#include <utility>

#include "transport/network.h"
#include "transport/tcp/resolver.h"

namespace hawser::transport {

// Streams over TCP with IPv4 and IPv6 ("host:port"), and over Unix sockets ("unix:/path" and "unix:@name").
class TcpNetwork final : public Network {
 public:
  explicit TcpNetwork(ResolverOptions resolving = {}) : names_(std::move(resolving)) {}

  // Resolves a name with getaddrinfo(), which blocks.
  Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) override;
  // Resolves a name on the loop, within `timeout`. If there are several addresses, the first that answers is used (RFC
  // 8305).
  Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) override;

 private:
  NameService names_;
};

}  // namespace hawser::transport
