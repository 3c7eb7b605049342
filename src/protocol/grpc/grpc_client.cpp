#include "hawser/grpc_client.h"

#include <stdexcept>
#include <utility>

#include "protocol/grpc/client_session.h"
#include "rpc/client/protocol_client.h"

namespace hawser {
namespace {

void check(const GrpcClientOptions& options) {
  const auto window = [](std::uint32_t bytes) { return bytes >= 65'535 && bytes <= INT32_MAX; };
  if (options.calls_in_flight_max < 1 || options.calls_in_flight_max > 65'535 ||
      options.message_bytes_max > UINT32_MAX || options.metadata_bytes_max < 1024 ||
      options.metadata_bytes_max > 65'535 || !window(options.stream_window_bytes) ||
      !window(options.connection_window_bytes)) {
    throw std::invalid_argument(
        "hawser: GrpcClientOptions: calls_in_flight_max must be from 1 to 65535, message_bytes_max at most 4294967295, "
        "metadata_bytes_max from 1024 to 65535, and the windows from 65535 to 2147483647");
  }
}

// The options of the Client that makes the calls.
ClientOptions calls_options(const GrpcClientOptions& options) {
  ClientOptions calls;
  calls.call_timeout = options.call_timeout;
  calls.calls_in_flight_max = options.calls_in_flight_max;
  calls.interceptors = options.interceptors;
  return calls;
}

}  // namespace

struct GrpcClient::State final : rpc::ProtocolClient {
  State(Loop& loop, GrpcClientOptions with)
      : ProtocolClient(&loop, with.connect_timeout, with.security, "h2", "grpc"), options(std::move(with)) {}
  std::shared_ptr<rpc::ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                             const std::string& address, rpc::ProtocolSession::Owner& owner) override {
    const bool local = address.starts_with("unix:");
    return std::make_shared<protocol::grpc::GrpcClientSession>(loop, std::move(stream), options,
                                                               !options.authority.empty() ? options.authority
                                                               : local                    ? "localhost"
                                                                                          : address,
                                                               owner);
  }
  bool going_away() const noexcept {
    const auto* const current = static_cast<const protocol::grpc::GrpcClientSession*>(session());
    return current != nullptr && current->going_away();
  }

  std::shared_ptr<const GrpcOutcome> report_next() {
    auto outcome = std::make_shared<GrpcOutcome>();
    if (auto* const current = static_cast<protocol::grpc::GrpcClientSession*>(session())) current->report_next(outcome);
    return outcome;
  }

  const GrpcClientOptions options;
};

GrpcClient::GrpcClient(Loop& loop, GrpcClientOptions options) : calls_(loop, calls_options(options)) {
  check(options);
  state_ = std::make_shared<State>(loop, std::move(options));
  state_->attach(calls_);
}

GrpcClient::~GrpcClient() { state_->close("the client was destroyed"); }

Task<Result<void>> GrpcClient::connect(std::string address) { return state_->connect(std::move(address)); }
bool GrpcClient::connected() const noexcept { return state_->connected(); }
void GrpcClient::close() { state_->close("the client was closed"); }
std::size_t GrpcClient::calls_in_flight() const noexcept { return state_->calls_in_flight(); }
bool GrpcClient::going_away() const noexcept { return state_->going_away(); }
std::shared_ptr<const GrpcOutcome> GrpcClient::report_next() { return state_->report_next(); }

}  // namespace hawser
