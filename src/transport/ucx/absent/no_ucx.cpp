#include <utility>

#include "transport/ucx/ucx_transport.h"

// Replaces the UCX transport in a build without libucx's headers.
namespace hawser::transport {
namespace {

Error absent() {
  return Error::of_transport(
      ErrorCode::unavailable,
      "Hawser was built without UCX: build it where libucx-dev 1.13 or later is installed, or leave UCX out");
}

class NoUcx final : public Transport {
 public:
  std::string_view name() const noexcept override { return "ucx"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop&) override { return fail(absent()); }
};

}  // namespace

std::shared_ptr<Transport> make_ucx_transport(const UcxOptions&) { return std::make_shared<NoUcx>(); }
std::shared_ptr<Transport> make_ucx_transport(const UcxOptions&, std::shared_ptr<void>&) {
  return std::make_shared<NoUcx>();
}
Result<UcxReport> ucx_report(const UcxOptions&) { return fail(absent()); }

}  // namespace hawser::transport
