#include "hawser/grpc_client.h"

#include <stdexcept>
#include <utility>

#include "protocol/grpc/client_session.h"
#include "protocol/grpc/option_bounds.h"
#include "rpc/client/client_protocol.h"

namespace hawser {
namespace {

void check(const GrpcClientOptions& options) {
  protocol::grpc::check_bounds("GrpcClientOptions",
                               {{"calls_in_flight_max", options.calls_in_flight_max, 1, 65'535},
                                {"message_bytes_max", options.message_bytes_max, 0, UINT32_MAX},
                                {"metadata_bytes_max", options.metadata_bytes_max, 1024, 65'535},
                                {"stream_window_bytes", options.stream_window_bytes, 65'535, INT32_MAX},
                                {"connection_window_bytes", options.connection_window_bytes, 65'535, INT32_MAX}});
}

// The options that a Client of any protocol has are those of `client`.
GrpcClientOptions session_options(GrpcClientOptions options, const ClientOptions& client) {
  options.call_timeout = client.call_timeout;
  options.calls_in_flight_max = client.calls_in_flight_max;
  options.message_bytes_max = client.message_bytes_max;
  options.send_backlog_bytes_max = client.send_backlog_bytes_max;
  options.stream_window_bytes = client.stream_window_bytes;
  options.decode_limits = client.decode_limits;
  options.ping_interval = client.ping_interval;
  return options;
}

class GrpcClientProtocol final : public rpc::ClientProtocol {
 public:
  explicit GrpcClientProtocol(GrpcClientOptions options) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "grpc"; }
  std::string_view alpn() const noexcept override { return "h2"; }
  std::shared_ptr<rpc::ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                             const std::string& address, const ClientOptions& client,
                                             rpc::ProtocolSession::Owner& owner) const override {
    const bool local = address.starts_with("unix:");
    return std::make_shared<protocol::grpc::GrpcClientSession>(loop, std::move(stream),
                                                               session_options(options_, client),
                                                               !options_.authority.empty() ? options_.authority
                                                               : local                     ? "localhost"
                                                                                           : address,
                                                               owner);
  }

 private:
  const GrpcClientOptions options_;
};

}  // namespace

ClientOptions grpc_client(GrpcClientOptions options) {
  check(options);
  ClientOptions client{.connect_timeout = options.connect_timeout,
                       .call_timeout = options.call_timeout,
                       .calls_in_flight_max = options.calls_in_flight_max,
                       .message_bytes_max = options.message_bytes_max,
                       .send_backlog_bytes_max = options.send_backlog_bytes_max,
                       .stream_window_bytes = options.stream_window_bytes,
                       .decode_limits = options.decode_limits,
                       .ping_interval = options.ping_interval,
                       .security = options.security,
                       .interceptors = options.interceptors};
  client.protocol = std::make_shared<GrpcClientProtocol>(std::move(options));
  return client;
}

}  // namespace hawser
