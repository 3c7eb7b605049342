#include <capnp/ez-rpc.h>
#include <capnp/message.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/peers/peer.h"
#include "capnp_echo.capnp.h"

// Cap'n Proto with its two-party RPC.
namespace hawser::bench {
namespace {

// Raises the limit on bytes traversed, which protects against repeated reads of a message: long runs exceed the
// default.
capnp::ReaderOptions reader_options() {
  capnp::ReaderOptions options;
  options.traversalLimitInWords = std::numeric_limits<std::uint64_t>::max() / 16;
  return options;
}

// Returns the size hint with which a message of so many bytes has room in its first segment.
capnp::MessageSize message_of(std::size_t bytes) {
  constexpr std::size_t words_beside = 32;
  return {bytes / sizeof(capnp::word) + words_beside, 0};
}
capnp::Data::Reader data_of(std::string_view text) {
  return {reinterpret_cast<const kj::byte*>(text.data()), text.size()};
}
std::string_view text_of(capnp::Data::Reader data) {
  return {reinterpret_cast<const char*>(data.begin()), data.size()};
}

class CapnpEchoService final : public capnp_echo::Echo::Server {
  kj::Promise<void> echo(EchoContext context) override {
    const capnp::Data::Reader data = context.getParams().getData();
    context.getResults(message_of(data.size())).setData(data);
    return kj::READY_NOW;
  }
  kj::Promise<void> acknowledge(AcknowledgeContext context) override {
    const PeerAck ack = peer_ack_of(text_of(context.getParams().getData()));
    auto results = context.getResults();
    results.setBytes(ack.bytes);
    results.setHead(ack.head);
    return kj::READY_NOW;
  }
};

// Makes one call after the other.
class CapnpCaller {
 public:
  CapnpCaller(capnp_echo::Echo::Client client, PeerLoad& load, std::size_t number)
      : client_(kj::mv(client)), load_(load), number_(number) {}

  kj::Promise<void> call() {
    load_.begin(number_);
    const std::string_view payload = load_.payload(number_);
    if (load_.ack()) {
      auto request = client_.acknowledgeRequest(message_of(payload.size()));
      request.setData(data_of(payload));
      return request.send().then(
          [this](auto reply) { return go_on(load_.end(number_, reply.getBytes(), reply.getHead())); });
    }
    auto request = client_.echoRequest(message_of(payload.size()));
    request.setData(data_of(payload));
    return request.send().then([this](auto reply) { return go_on(load_.end(number_, text_of(reply.getData()))); });
  }

 private:
  kj::Promise<void> go_on(bool more) {
    if (more) return call();
    return kj::READY_NOW;
  }

  capnp_echo::Echo::Client client_;
  PeerLoad& load_;
  const std::size_t number_;
};

}  // namespace

std::string_view peer_name() noexcept { return "capnp"; }

void serve_peer(const PeerTls&, const std::function<void(const std::string& address)>& listening) {
  capnp::EzRpcServer server(kj::heap<CapnpEchoService>(), "127.0.0.1", 0, reader_options());
  kj::WaitScope& scope = server.getWaitScope();
  listening("127.0.0.1:" + std::to_string(server.getPort().wait(scope)));
  kj::NEVER_DONE.wait(scope);
}

void call_peer(const PeerTls&, PeerLoad& load) {
  std::vector<std::unique_ptr<capnp::EzRpcClient>> clients;
  for (unsigned i = 0; i < load.connections(); ++i) {
    clients.push_back(std::make_unique<capnp::EzRpcClient>(load.address().c_str(), 0, reader_options()));
  }
  std::vector<std::unique_ptr<CapnpCaller>> callers;
  auto calls = kj::heapArrayBuilder<kj::Promise<void>>(load.callers());
  for (unsigned i = 0; i < load.callers(); ++i) {
    capnp::EzRpcClient& client = *clients[i % clients.size()];
    callers.push_back(std::make_unique<CapnpCaller>(client.getMain<capnp_echo::Echo>(), load, i));
    calls.add(callers.back()->call());
  }
  kj::joinPromises(calls.finish()).wait(clients.front()->getWaitScope());
}

}  // namespace hawser::bench
