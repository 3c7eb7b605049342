#include "hawser/client.h"

#include <utility>

#include "rpc/client/native_client.h"
#include "rpc/client/protocol_client.h"

namespace hawser {
namespace {

std::unique_ptr<rpc::ClientState> make_state(Loop* loop, std::shared_ptr<transport::Network> network,
                                             ClientOptions options) {
  if (options.protocol) return std::make_unique<rpc::ProtocolClient>(loop, std::move(network), std::move(options));
  return std::make_unique<rpc::NativeClient>(loop, std::move(network), std::move(options));
}

}  // namespace

Client::Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : state_(make_state(loop, std::move(network), std::move(options)).release()), link_(&state_->link) {}

Client::~Client() {
  destruction_.send();
  state_->end();
}

void Client::add_interceptor(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor) {
  state_->add_interceptor(std::move(interceptor));
}

Task<Result<void>> Client::connect(std::string address) { return state_->connect(std::move(address)); }
void Client::close() { state_->close("the client was closed"); }
std::size_t Client::calls_in_flight() const noexcept {
  return state_->calls_in_flight() + (state_->interception ? state_->interception->calls_waiting() : 0);
}
Time Client::last_used() const noexcept { return state_->last_used(); }
bool Client::going_away() const noexcept { return state_->going_away(); }
std::string_view Client::transport() const noexcept { return state_->transport_name(); }
const std::vector<TransportFallback>& Client::fallback_reasons() const noexcept { return state_->fallback_reasons; }
std::uint64_t Client::failovers() const noexcept { return state_->failovers; }
void Client::enable(TransportSpec transport) {
  state_->options.transports.enable(std::move(transport));
  state_->transports_changed();
}
std::vector<std::shared_ptr<transport::Transport>> Client::transports() const {
  return state_->network->transports(state_->options.transports);
}
std::shared_ptr<detail::RegionTable> Client::regions() const { return state_->regions; }
const std::string& Client::address() const noexcept { return state_->address; }
Task<Result<Duration>> Client::ping() { return state_->ping(); }

}  // namespace hawser
