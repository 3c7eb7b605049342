#include "transport/rdma/connection/terms.h"

#include "transport/rdma/device/address.h"
#include "transport/rdma/memory/remote_access.h"
#include "wire/message.h"

namespace hawser::transport::rdma {
namespace {

// Minimum of work requests per connection. With a shared receive queue there are many connections, and most are idle.
constexpr unsigned shared_depth = 24;

}  // namespace

RdmaTerms::RdmaTerms(const Side& ours) noexcept
    : ours_(ours),
      chunk_bytes_(ours.options.shared_receive_queue ? ours.options.shared_chunk_bytes : ours.options.chunk_bytes),
      receives_(ours.options.shared_receive_queue ? ours.options.shared_receives_per_connection
                                                  : ours.options.recv_queue_depth),
      sends_(ours.options.shared_receive_queue ? std::min(ours.options.send_queue_depth, shared_depth)
                                               : ours.options.send_queue_depth) {}

// Whoever can send packets to the queue pair could read what it lets the peer read. Protected messages need no reads.
std::uint32_t RdmaTerms::reads() const noexcept {
  if (ours_.limits.protected_messages) return 0;
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(ours_.options.reads_outstanding_max, ours_.reads_outstanding));
}

RdmaParameters RdmaTerms::parameters(const PortStatus& port, std::uint32_t queue_pair) const noexcept {
  return {.ethernet = port.ethernet,
          .lid = port.lid,
          .queue_pair = queue_pair,
          .sequence = ours_.sequence,
          .mtu_bytes = ours_.mtu_bytes,
          .chunk_bytes = static_cast<std::uint32_t>(chunk_bytes_),
          .receives = receives_,
          .reads = reads(),
          .domain = ours_.domain,
          .gid = ours_.address.gid};
}

Result<QueuePairRoute> RdmaTerms::route_to(const RdmaParameters& peer, const PortStatus& port) const {
  if (peer.ethernet != port.ethernet) {
    return fail(Error::of_transport(ErrorCode::unavailable, "one side has RoCE and the other InfiniBand"));
  }
  const std::uint32_t reads_of_both = reads_with(peer);
  QueuePairRoute route = route_with(ours_.options);
  route.port = port.number;
  route.gid_index = ours_.address.index;
  route.global = port.ethernet || !peer.gid.zero();
  route.peer_gid = peer.gid;
  route.peer_lid = peer.lid;
  route.peer_queue_pair = peer.queue_pair;
  route.rq_psn = peer.sequence;
  route.sq_psn = ours_.sequence;
  route.mtu_bytes = std::min<unsigned>(ours_.mtu_bytes, peer.mtu_bytes);
  route.max_rd_atomic = reads_of_both;
  route.max_dest_rd_atomic = reads();
  // Without reads there are no rendezvous and no one-sided operations.
  if (reads_of_both != 0) route.access = RdmaRemoteAccess::always;
  return route;
}

RdmaChannelOptions RdmaTerms::channel_to(const RdmaParameters& peer, std::size_t segments,
                                         const exec::Poller& clock) const {
  const RdmaOptions& options = ours_.options;
  const std::uint32_t reads_of_both = reads_with(peer);
  RdmaChannelOptions channel;
  channel.sender = {.packet_bytes_max = std::min<std::size_t>(chunk_bytes_, peer.chunk_bytes),
                    .chunk_bytes = chunk_bytes_,
                    .send_window = options.send_window,
                    // Without reads the peer cannot read payloads from this side's memory.
                    .eager_bytes_max = reads_of_both == 0 ? SIZE_MAX : options.eager_bytes_max,
                    .copied_bytes_max = options.copied_bytes_max,
                    .rendezvous_max = options.rendezvous_max};
  channel.receiver = {.message_limit = wire::MessageLimit::without_prefix(ours_.limits.receive_bytes_max),
                      .receive_buffer_bytes_min = receive_buffer_bytes_min,
                      .transfers = {.read_bytes_max = options.read_bytes_max,
                                    .reads_max = reads_of_both,
                                    .ahead_bytes_max = options.read_ahead_bytes_max,
                                    .staging_bytes = chunk_bytes_},
                      .held_chunks_max = RdmaCredits::held_max(receives_)};
  // Without reads the peer's device answers none.
  channel.one_sided = {.peer_domain = reads_of_both == 0 ? 0 : peer.domain,
                       .operations_max = options.one_sided_max,
                       .part_bytes_max = 2 * options.read_bytes_max,
                       .segments_max = segments,
                       .parts_max = std::max<std::size_t>(reads_of_both, 1),
                       .clock = &clock};
  channel.send_slots = sends_;
  channel.signal_every = std::min(options.signal_every, sends_ / 2);
  channel.peer_receives = peer.receives;
  channel.own_receives = receives_;
  return channel;
}

}  // namespace hawser::transport::rdma
