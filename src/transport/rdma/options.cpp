#include <array>
#include <cstdint>
#include <string>

#include "base/decimal_text.h"
#include "transport/rdma/rdma_transport.h"

namespace hawser::transport {
namespace {

struct Bound {
  const char* name;
  std::uint64_t value, least, most;
};

constexpr std::uint64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

Result<void> refuse(const std::string& text) { return fail(ErrorCode::invalid_argument, "RdmaOptions::" + text); }

}  // namespace

Result<void> check_rdma_options(const RdmaOptions& options) {
  const auto gid = static_cast<std::uint64_t>(options.gid_index + std::int64_t{1});
  const std::array bounds = {
      Bound{"port", options.port, 0, 255},
      Bound{"gid_index + 1", gid, 0, 256},
      Bound{"traffic_class", options.traffic_class, 0, 255},
      Bound{"service_level", options.service_level, 0, 15},
      Bound{"hop_limit", options.hop_limit, 1, 255},
      Bound{"pkey_index", options.pkey_index, 0, 65'535},
      Bound{"ack_timeout", options.ack_timeout, 1, 31},
      Bound{"retries", options.retries, 0, 7},
      Bound{"rnr_retries", options.rnr_retries, 0, 7},
      Bound{"min_rnr_timer", options.min_rnr_timer, 0, 31},
      Bound{"reads_outstanding_max", options.reads_outstanding_max, 1, 255},
      Bound{"chunk_bytes", options.chunk_bytes, 4 * kib, 16 * mib},
      Bound{"recv_queue_depth", options.recv_queue_depth, 4, 4096},
      Bound{"send_window", options.send_window, 1, 64},
      Bound{"send_queue_depth", options.send_queue_depth, 16, 16 * kib},
      Bound{"inline_bytes", options.inline_bytes, 0, 4096},
      Bound{"eager_bytes_max", options.eager_bytes_max, kib, gib},
      Bound{"copied_bytes_max", options.copied_bytes_max, 0, gib},
      Bound{"rendezvous_max", options.rendezvous_max, 1, 1024},
      Bound{"read_bytes_max", options.read_bytes_max, 64 * kib, gib},
      Bound{"read_ahead_bytes_max", options.read_ahead_bytes_max, 0, gib},
      Bound{"one_sided_max", options.one_sided_max, 1, 64 * kib},
      Bound{"signal_every", options.signal_every, 1, options.send_queue_depth / 2},
      Bound{"shared_chunk_bytes", options.shared_chunk_bytes, 4 * kib, 16 * mib},
      Bound{"shared_receives_per_connection", options.shared_receives_per_connection, 4, 64},
      Bound{"shared_receives_max", options.shared_receives_max, 64, mib},
      Bound{"memory_bytes_max", options.memory_bytes_max, 8 * mib, SIZE_MAX},
      Bound{"arena_bytes", options.arena_bytes, mib, gib},
      Bound{"queue_pairs_max", options.queue_pairs_max, 1, SIZE_MAX},
      Bound{"half_open_max", options.half_open_max, 1, 64 * kib},
      Bound{"cq_entries", options.cq_entries, 256, mib},
      Bound{"poll_burst", options.poll_burst, 1, 1024},
  };
  for (const Bound& bound : bounds) {
    if (bound.value >= bound.least && bound.value <= bound.most) continue;
    return refuse(std::string(bound.name) + " is " + std::to_string(bound.value) + ", and must be from " +
                  std::to_string(bound.least) + " to " + std::to_string(bound.most));
  }
  if (options.chunk_bytes % 4096 != 0 || options.shared_chunk_bytes % 4096 != 0) {
    return refuse("chunk_bytes is " + std::to_string(options.chunk_bytes) + ", shared_chunk_bytes is " +
                  std::to_string(options.shared_chunk_bytes) + ", and both must be multiples of 4096");
  }
  const unsigned mtu = options.path_mtu_bytes;
  if (mtu != 0 && mtu != 256 && mtu != 512 && mtu != 1024 && mtu != 2048 && mtu != 4096) {
    return refuse("path_mtu_bytes is " + std::to_string(mtu) + ", and must be 0, 256, 512, 1024, 2048 or 4096");
  }
  if (!(options.shared_low_watermark >= 0 && options.shared_low_watermark <= 1)) {
    return refuse("shared_low_watermark is " + short_text(options.shared_low_watermark, 6) +
                  ", and must be from 0 to 1");
  }
  if (options.idle_memory_timeout < Duration::zero()) {
    return refuse("idle_memory_timeout is " + std::to_string(options.idle_memory_timeout.count()) +
                  " ns, and must not be negative");
  }
  if (options.port_down_grace < Duration::zero() || options.port_down_grace > std::chrono::seconds(60)) {
    return refuse("port_down_grace is " + std::to_string(options.port_down_grace.count()) +
                  " ns, and must be from 0 to 60 s");
  }
  return {};
}

std::size_t rdma_connection_bytes_max(const RdmaOptions& options) noexcept {
  return rdma_idle_connection_bytes(options) + options.send_window * options.chunk_bytes;
}

std::size_t rdma_idle_connection_bytes(const RdmaOptions& options) noexcept {
  return options.shared_receive_queue ? options.shared_receives_per_connection * options.shared_chunk_bytes
                                      : options.recv_queue_depth * options.chunk_bytes;
}

}  // namespace hawser::transport
