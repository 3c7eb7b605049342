#include <memory>
#include <utility>

#include "hawser/brpc.h"
#include "protocol/baidu_std/client_session.h"
#include "rpc/client/protocol_client.h"

namespace hawser {

struct BaiduStdClient::State final : rpc::ProtocolClient {
  State(Loop* loop, BaiduStdClientOptions with)
      : ProtocolClient(loop, with.client.connect_timeout, with.client.security, {}, "baidu_std"),
        options(std::move(with)) {}
  std::shared_ptr<rpc::ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream, const std::string&,
                                             rpc::ProtocolSession::Owner& owner) override {
    return std::make_shared<protocol::baidu_std::BaiduStdClientSession>(loop, std::move(stream), options, owner);
  }

  const BaiduStdClientOptions options;
};

BaiduStdClient::BaiduStdClient(BaiduStdClientOptions options)
    : calls_(options.client), state_(std::make_shared<State>(nullptr, std::move(options))) {
  state_->attach(calls_);
}

BaiduStdClient::BaiduStdClient(Loop& loop, BaiduStdClientOptions options)
    : calls_(loop, options.client), state_(std::make_shared<State>(&loop, std::move(options))) {
  state_->attach(calls_);
}

BaiduStdClient::~BaiduStdClient() { state_->close("the client was destroyed"); }

Task<Result<void>> BaiduStdClient::connect(std::string address) { return state_->connect(std::move(address)); }
bool BaiduStdClient::connected() const noexcept { return state_->connected(); }
void BaiduStdClient::close() { state_->close("the client was closed"); }
std::size_t BaiduStdClient::calls_in_flight() const noexcept { return state_->calls_in_flight(); }

}  // namespace hawser
