#pragma once

#include "transport/network.h"

namespace hawser::transport {

// Streams over TCP, IPv4 and IPv6, by "host:port", and over Unix sockets, by "unix:/path" and "unix:@name".
class TcpNetwork final : public Network {
 public:
  Result<std::unique_ptr<Listener>> listen(Loop& loop, std::string_view address, AcceptSink& sink) override;
  Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string address, Duration timeout) override;
};

}  // namespace hawser::transport
