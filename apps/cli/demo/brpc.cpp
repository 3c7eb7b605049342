#include "hawser/brpc.h"

#include <utility>

#include "cli/demo/protocols.h"

namespace hawser::cli {
namespace {

class BaiduStdCaller final : public DemoCaller {
 public:
  explicit BaiduStdCaller(const BaiduStdClientOptions& options) : client_(*Loop::current(), options) {}
  Task<Result<void>> connect(std::string address) override { return client_.connect(std::move(address)); }
  Client& client() noexcept override { return client_.caller(); }

 private:
  BaiduStdClient client_;
};

}  // namespace

void enable_baidu_std(Server& server) { server.enable(baidu_std()); }

std::unique_ptr<DemoCaller> make_baidu_std_caller(Duration timeout) {
  BaiduStdClientOptions options;
  options.client.connect_timeout = options.client.call_timeout = timeout;
  return std::make_unique<BaiduStdCaller>(options);
}

}  // namespace hawser::cli
