#include <utility>

#include "cli/call/peer.h"
#include "hawser/brpc.h"

namespace hawser::cli {
namespace {

BaiduStdClientOptions baidu_std_options(const PeerOptions& options) {
  BaiduStdClientOptions made;
  made.client.connect_timeout = options.timeout;
  made.client.call_timeout = options.timeout;
  made.client.security = options.security;
  return made;
}

class BaiduStdPeer final : public CallPeer {
 public:
  BaiduStdPeer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files)
      : CallPeer(options, baidu_std_client(baidu_std_options(options))), files_(std::move(files)) {}

  Task<Result<Duration>> ping() override {
    co_return fail(ErrorCode::invalid_argument, "hawser ping measures the native protocol");
  }
  Task<Result<std::vector<std::string>>> list() override { co_return files_->methods(); }
  Task<Result<Method>> find(std::string name) override { co_return files_->method(name); }
  Task<Result<std::string>> describe(std::string name) override { co_return files_->text(name); }

 private:
  const std::unique_ptr<ProtobufFiles> files_;
};

}  // namespace

std::unique_ptr<CallPeer> make_baidu_std_peer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files) {
  return std::make_unique<BaiduStdPeer>(options, std::move(files));
}

}  // namespace hawser::cli
