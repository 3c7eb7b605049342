#include "runtime/transports.h"

#include <utility>

#include "hawser/transport/factory.h"
#include "runtime/option_difference.h"
#include "transport/rdma/rdma_transport.h"
#include "transport/shm/shm_transport.h"
#include "transport/ucx/ucx_transport.h"

// Lists the transports of this library. Each one is a folder below src/transport with a factory, and one line here.
namespace hawser {
namespace {

constexpr transport::Traits shm_traits{.name = "shm", .rank = 10};
constexpr transport::Traits rdma_traits{.name = "rdma", .rank = 20, .shared = "devices and registered memory"};
constexpr transport::Traits ucx_traits{.name = "ucx", .rank = 30, .shared = "UCX contexts and workers"};

std::shared_ptr<transport::Transport> make_shm(const ShmOptions& options) {
  return transport::make_shm_transport(options);
}
std::shared_ptr<transport::Transport> make_rdma(const RdmaOptions& options) {
  return transport::make_rdma_transport(options);
}
std::shared_ptr<transport::Transport> make_ucx(const UcxOptions& options, std::shared_ptr<void>& kept) {
  return transport::make_ucx_transport(options, kept);
}

std::string_view rdma_difference(const RdmaOptions& a, const RdmaOptions& b) {
  return runtime::first_difference<
      &RdmaOptions::device, &RdmaOptions::port, &RdmaOptions::address, &RdmaOptions::gid_index,
      &RdmaOptions::path_mtu_bytes, &RdmaOptions::traffic_class, &RdmaOptions::service_level, &RdmaOptions::hop_limit,
      &RdmaOptions::pkey_index, &RdmaOptions::ack_timeout, &RdmaOptions::retries, &RdmaOptions::rnr_retries,
      &RdmaOptions::min_rnr_timer, &RdmaOptions::reads_outstanding_max, &RdmaOptions::chunk_bytes,
      &RdmaOptions::recv_queue_depth, &RdmaOptions::send_window, &RdmaOptions::send_queue_depth,
      &RdmaOptions::inline_bytes, &RdmaOptions::eager_bytes_max, &RdmaOptions::copied_bytes_max,
      &RdmaOptions::rendezvous_max, &RdmaOptions::read_bytes_max, &RdmaOptions::read_ahead_bytes_max,
      &RdmaOptions::one_sided_max, &RdmaOptions::signal_every, &RdmaOptions::shared_receive_queue,
      &RdmaOptions::shared_chunk_bytes, &RdmaOptions::shared_receives_per_connection, &RdmaOptions::shared_receives_max,
      &RdmaOptions::shared_low_watermark, &RdmaOptions::memory_bytes_max, &RdmaOptions::arena_bytes,
      &RdmaOptions::huge_pages, &RdmaOptions::idle_memory_timeout, &RdmaOptions::queue_pairs_max,
      &RdmaOptions::half_open_max, &RdmaOptions::port_down_grace, &RdmaOptions::fork_safe,
      &RdmaOptions::relaxed_ordering, &RdmaOptions::cq_entries, &RdmaOptions::poll_burst>(a, b);
}
std::string_view ucx_difference(const UcxOptions& a, const UcxOptions& b) {
  return runtime::first_difference<
      &UcxOptions::tls, &UcxOptions::net_devices, &UcxOptions::max_eager_rails, &UcxOptions::max_rendezvous_rails,
      &UcxOptions::rendezvous_bytes_min, &UcxOptions::registered_bytes_min, &UcxOptions::packed_bytes_max,
      &UcxOptions::window_bytes, &UcxOptions::rendezvous_in_flight_max, &UcxOptions::poll_burst,
      &UcxOptions::error_mode, &UcxOptions::close_with_flush, &UcxOptions::wire_up, &UcxOptions::listener_address,
      &UcxOptions::wire_up_timeout, &UcxOptions::connections_max, &UcxOptions::half_open_max, &UcxOptions::log_level>(
      a, b);
}

}  // namespace

TransportSpec shm(ShmOptions options) { return transport::make_spec(shm_traits, options, &make_shm); }
TransportSpec rdma(RdmaOptions options) {
  return transport::make_spec(rdma_traits, std::move(options), &make_rdma, &rdma_difference);
}
TransportSpec ucx(UcxOptions options) {
  return transport::make_spec(ucx_traits, std::move(options), &make_ucx, &ucx_difference);
}

std::vector<std::string_view> runtime::built_in_names() { return {shm_traits.name, rdma_traits.name, ucx_traits.name}; }

}  // namespace hawser
