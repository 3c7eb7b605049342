#include <utility>

#include "bench/load/protocols.h"
#include "hawser/brpc.h"

namespace hawser::bench {
namespace {

class BaiduStdLoadCaller final : public ProtocolCaller {
 public:
  BaiduStdLoadCaller(Loop& loop, const ClientOptions& options) : client_(loop, {.client = options}) {}
  Task<Result<void>> connect(std::string address) override { return client_.connect(std::move(address)); }
  Client& client() noexcept override { return client_.caller(); }

 private:
  BaiduStdClient client_;
};

}  // namespace

std::unique_ptr<ProtocolCaller> make_baidu_std_caller(Loop& loop, const ClientOptions& options) {
  return std::make_unique<BaiduStdLoadCaller>(loop, options);
}

void enable_baidu_std(Server& server) { server.enable(baidu_std()); }

}  // namespace hawser::bench
