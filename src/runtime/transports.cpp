#include "runtime/transports.h"

#include <utility>

#include "hawser/transport/factory.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/ucx/ucx_transport.h"

// The transports that come with this library: a folder below src/transport, a factory there, and a line here for each.
namespace hawser {
namespace {

constexpr transport::Traits shm_traits{.name = "shm", .rank = 10};
constexpr transport::Traits rdma_traits{.name = "rdma", .rank = 20};
constexpr transport::Traits ucx_traits{.name = "ucx", .rank = 30};

std::shared_ptr<transport::Transport> make_shm(const ShmOptions& options) {
  return transport::make_shm_transport(options);
}
std::shared_ptr<transport::Transport> make_rdma(const RdmaOptions& options) {
  return transport::make_rdma_transport(options);
}

}  // namespace

TransportSpec shm(ShmOptions options) { return transport::make_spec(shm_traits, options, &make_shm); }
TransportSpec rdma(RdmaOptions options) { return transport::make_spec(rdma_traits, std::move(options), &make_rdma); }
TransportSpec ucx(UcxOptions options) {
  return transport::make_spec(ucx_traits, std::move(options), &transport::make_ucx_transport);
}

std::vector<std::string_view> setup::built_in_names() { return {shm_traits.name, rdma_traits.name, ucx_traits.name}; }

}  // namespace hawser
