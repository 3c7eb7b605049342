#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/http.h"
#include "protocol/http1/json/function_json.h"
#include "protocol/http1/routes.h"
#include "rpc/port/port_protocol.h"

namespace hawser::http1 {

// Recognises HTTP/1 by its methods, and makes the sessions.
class HttpProtocol final : public rpc::PortProtocol {
 public:
  HttpProtocol(const HttpOptions& options, std::shared_ptr<const RouteTable> routes)
      : options_(options), routes_(std::move(routes)) {}

  std::string_view name() const noexcept override { return "http"; }
  std::string_view alpn() const noexcept override { return "http/1.1"; }
  Match match(Bytes first) const noexcept override;
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override;
  std::string refusal(const Error& why) const override;

 private:
  const HttpOptions options_;
  const std::shared_ptr<const RouteTable> routes_;
  mutable FunctionJsons functions_;
};

}  // namespace hawser::http1
