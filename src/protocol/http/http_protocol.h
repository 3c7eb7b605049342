#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/http.h"
#include "protocol/http/json/function_json.h"
#include "protocol/http/request_plan.h"
#include "protocol/http/routes.h"
#include "rpc/port/http_streams.h"
#include "rpc/port/port_protocol.h"

namespace hawser::protocol::http {

// Recognises HTTP/1 by its methods, and makes the sessions. Serves requests over HTTP/2 too.
class HttpProtocol final : public rpc::PortProtocol, rpc::HttpStreamService {
 public:
  HttpProtocol(const HttpOptions& options, std::shared_ptr<const RouteTable> routes)
      : options_(options), routes_(std::move(routes)) {}

  std::string_view name() const noexcept override { return "http"; }
  std::string_view alpn() const noexcept override { return "http/1.1"; }
  Match match(Bytes first) const noexcept override;
  Duration silence_max() const noexcept override { return options_.idle_timeout; }
  std::unique_ptr<rpc::PortSession> open(rpc::PortHost& host, std::unique_ptr<transport::Stream> stream,
                                         Bytes first) const override;
  std::string refusal(const Error& why) const override;

  RouteNames route_names() const override { return routes_->names(); }
  const rpc::HttpStreamService* http_streams() const noexcept override { return this; }

 private:
  std::unique_ptr<rpc::HttpStreams> open_streams(rpc::HttpStreamHost& host) const override;
  Served served(const rpc::PortHost& host) const noexcept {
    return {options_, *routes_, functions_, host.dispatcher.routes_of(this)};
  }

  const HttpOptions options_;
  const std::shared_ptr<const RouteTable> routes_;
  mutable FunctionJsons functions_;
};

}  // namespace hawser::protocol::http
