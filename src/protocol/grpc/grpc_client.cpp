#include "hawser/grpc_client.h"

#include <stdexcept>
#include <utility>

#include "hawser/runtime.h"
#include "protocol/grpc/client_session.h"
#include "transport/network.h"

namespace hawser {

using protocol::grpc::ClientSession;

struct GrpcClient::State final : ClientSession::Owner {
  State(Loop& on, std::shared_ptr<transport::Network> over, GrpcClientOptions with)
      : loop(on), network(std::move(over)), options(std::move(with)) {}

  void on_session_end(const Error& reason) override {
    link.channel = nullptr;
    link.reason = reason;
    // The session's functions are on the stack.
    loop.post([ended = std::move(session)] {});
  }
  void close(std::string text) {
    if (session == nullptr) return;
    link.channel = nullptr;
    link.reason = {ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, std::move(text)};
    const std::shared_ptr<ClientSession> ended = std::move(session);
    ended->close(link.reason);
    loop.post([ended] {});
  }

  Loop& loop;
  const std::shared_ptr<transport::Network> network;
  const GrpcClientOptions options;
  detail::ClientLink link;
  std::shared_ptr<ClientSession> session;
  bool connecting = false;
  bool destroyed = false;
};

GrpcClient::GrpcClient(Loop& loop, std::shared_ptr<transport::Network> network, GrpcClientOptions options) {
  const auto window = [](std::uint32_t bytes) { return bytes >= 65'535 && bytes <= INT32_MAX; };
  if (options.calls_in_flight_max < 1 || options.calls_in_flight_max > 65'535 ||
      options.message_bytes_max > UINT32_MAX || options.metadata_bytes_max < 1024 ||
      options.metadata_bytes_max > 65'535 || !window(options.stream_window_bytes) ||
      !window(options.connection_window_bytes)) {
    throw std::invalid_argument(
        "hawser: GrpcClientOptions: calls_in_flight_max must be from 1 to 65535, message_bytes_max at most 4294967295, "
        "metadata_bytes_max from 1024 to 65535, and the windows from 65535 to 2147483647");
  }
  state_ = std::make_shared<State>(loop, std::move(network), std::move(options));
  link_ = &state_->link;
  link_->reason = {ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
                   "the client is not connected: await connect() first"};
}

GrpcClient::GrpcClient(Loop& loop, GrpcClientOptions options)
    : GrpcClient(loop,
                 (loop.options().runtime != nullptr ? loop.options().runtime : Runtime::process_default())->network(),
                 std::move(options)) {}

GrpcClient::~GrpcClient() {
  state_->destroyed = true;
  state_->close("the client was destroyed");
}

void GrpcClient::close() { state_->close("the client was closed"); }

std::size_t GrpcClient::calls_in_flight() const noexcept {
  return state_->session == nullptr ? 0 : state_->session->calls_in_flight();
}

bool GrpcClient::going_away() const noexcept { return state_->session != nullptr && state_->session->going_away(); }

Task<Result<void>> GrpcClient::connect(std::string address) { return connect_to(state_, std::move(address)); }

Task<Result<void>> GrpcClient::connect_to(std::shared_ptr<State> state, std::string address) {
  if (state->session != nullptr) co_return Result<void>();
  if (state->connecting) co_return fail(ErrorCode::invalid_argument, "connect() runs already: await it first");
  state->connecting = true;
  auto dialing = state->network->connect(state->loop, address, state->options.connect_timeout);
  Result<std::unique_ptr<transport::Stream>> stream = co_await std::move(dialing);
  state->connecting = false;
  if (!stream) co_return std::unexpected(stream.error());
  if (state->destroyed) co_return fail(ErrorCode::unavailable, "the client was destroyed", ErrorScope::connection);
  const bool local = address.starts_with("unix:");
  std::string authority = !state->options.authority.empty() ? state->options.authority : local ? "localhost" : address;
  state->session =
      std::make_shared<ClientSession>(state->loop, std::move(*stream), state->options, std::move(authority), *state);
  state->session->begin();
  state->link.channel = state->session.get();
  co_return Result<void>();
}

}  // namespace hawser
