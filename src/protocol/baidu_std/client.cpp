#include <memory>
#include <utility>

#include "hawser/brpc.h"
#include "protocol/baidu_std/client_session.h"
#include "rpc/client/client_protocol.h"

namespace hawser {
namespace protocol::baidu_std {
namespace {

class BaiduStdClientProtocol final : public rpc::ClientProtocol {
 public:
  explicit BaiduStdClientProtocol(BaiduStdClientOptions options) : options_(std::move(options)) {}
  std::string_view name() const noexcept override { return "baidu_std"; }
  std::shared_ptr<rpc::ProtocolSession> open(Loop& loop, std::unique_ptr<transport::Stream> stream, const std::string&,
                                             const ClientOptions& client,
                                             rpc::ProtocolSession::Owner& owner) const override {
    BaiduStdClientOptions options = options_;
    options.client = client;
    return std::make_shared<BaiduStdClientSession>(loop, std::move(stream), std::move(options), owner);
  }

 private:
  const BaiduStdClientOptions options_;
};

}  // namespace
}  // namespace protocol::baidu_std

ClientOptions baidu_std_client(BaiduStdClientOptions options) {
  ClientOptions client = std::move(options.client);
  client.protocol = std::make_shared<protocol::baidu_std::BaiduStdClientProtocol>(std::move(options));
  return client;
}

}  // namespace hawser
