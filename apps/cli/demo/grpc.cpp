#include "hawser/grpc.h"

#include <utility>

#include "cli/demo/protocols.h"
#include "hawser/grpc_client.h"
#include "hawser/grpc_health.h"
#include "hawser/grpc_reflection.h"

namespace hawser::cli {
namespace {

class DemoGrpcCaller final : public DemoCaller {
 public:
  explicit DemoGrpcCaller(const GrpcClientOptions& options) : client_(*Loop::current(), options) {}
  Task<Result<void>> connect(std::string address) override { return client_.connect(std::move(address)); }
  Client& client() noexcept override { return client_.caller(); }

 private:
  GrpcClient client_;
};

}  // namespace

void enable_grpc(Server& server) {
  server.enable(grpc());
  const GrpcHealth health(server);  // The service goes on without it.
  add_grpc_reflection(server);
}

std::unique_ptr<DemoCaller> make_grpc_caller(Duration timeout) {
  GrpcClientOptions options;
  options.connect_timeout = options.call_timeout = timeout;
  return std::make_unique<DemoGrpcCaller>(options);
}

}  // namespace hawser::cli
