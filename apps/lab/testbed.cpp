#include "lab/testbed.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/try.h"

namespace hawser::lab {

namespace rdma = transport::rdma;

Result<Testbed::End> Testbed::open_end(rdma::Verbs& verbs, const std::string& name, const TestbedOptions& options) {
  TRY(auto&& device, verbs.open(name));
  End end{.device = std::move(device)};
  TRY(auto&& status, end.device->port(options.port));
  end.status = status;
  if (!end.status.active) {
    return fail(ErrorCode::unavailable, "port " + std::to_string(options.port) + " of " + name +
                                            " is not active: bring its link up, or choose another by --port");
  }
  TRY(auto&& gids, end.device->gids(options.port));
  const auto chosen = std::find_if(gids.begin(), gids.end(), [&](const rdma::GidEntry& entry) {
    return options.gid_index >= 0 ? entry.index == static_cast<unsigned>(options.gid_index)
                                  : entry.type == rdma::GidType::roce_v2 && entry.gid.ipv4_mapped();
  });
  if (chosen != gids.end()) {
    end.gid = *chosen;
  } else if (options.gid_index >= 0 || gids.empty()) {
    return fail(ErrorCode::unavailable, "no such entry in the GID table of " + name + ": see `hawser doctor`");
  } else {
    end.gid = gids.front();
  }
  return end;
}

Result<Testbed> Testbed::open(rdma::Verbs& verbs, Executor& executor, const TestbedOptions& options) {
  TRY(auto&& names, verbs.devices());
  if (names.empty()) {
    return fail(ErrorCode::unavailable, "there is no RDMA device: use --simulated, or tools/rdma-guest");
  }
  const std::string sender = options.sender_device.empty() ? names.front() : options.sender_device;
  std::string receiver = options.receiver_device;
  if (receiver.empty()) {
    const bool next = executor.simulated() && names.size() > 1 && sender == names.front();
    receiver = next ? names[1] : sender;
  }
  Testbed testbed;
  testbed.executor_ = &executor;
  testbed.port_ = options.port;
  TRY(auto&& sender_end, open_end(verbs, sender, options));
  testbed.sender_ = std::move(sender_end);
  if (receiver == sender) {
    testbed.receiver_ = testbed.sender_;
  } else {
    TRY(auto&& receiver_end, open_end(verbs, receiver, options));
    testbed.receiver_ = std::move(receiver_end);
  }
  return testbed;
}

std::string Testbed::describe() const {
  std::string text = sender_.device->name();
  if (receiver_.device != sender_.device) text += " to " + receiver_.device->name();
  return text;
}

rdma::QueuePairRoute Testbed::route(const End& own, const End& peer, std::uint32_t queue_pair,
                                    const LinkOptions& options) const {
  return {.port = port_,
          .gid_index = own.gid.index,
          .global = own.status.ethernet,
          .peer_gid = peer.gid.gid,
          .peer_lid = peer.status.lid,
          .peer_queue_pair = queue_pair,
          .mtu_bytes = std::min(own.status.mtu_bytes, peer.status.mtu_bytes),
          .rnr_retries = options.rnr_retries,
          .min_rnr_timer = options.min_rnr_timer,
          .max_rd_atomic =
              static_cast<unsigned>(std::min<std::size_t>(options.reads, own.device->limits().reads_outstanding)),
          .max_dest_rd_atomic =
              static_cast<unsigned>(std::min<std::size_t>(options.reads, own.device->limits().reads_outstanding)),
          .access = {.remote_read = true, .remote_write = true}};
}

Result<void> Testbed::connect(rdma::QueuePair& sender, rdma::QueuePair& receiver, const LinkOptions& options) const {
  TRY(receiver.connect(route(receiver_, sender_, sender.number(), options)));
  return sender.connect(route(sender_, receiver_, receiver.number(), options));
}

std::uint64_t Testbed::receiver_not_ready() const {
  // One counter reports each event: the sender's, whose name depends on the driver (Soft-RoCE or mlx5), else the
  // receiver's.
  constexpr std::array<std::string_view, 3> names = {"rcvd_rnr_err", "rnr_nak_retry_err", "out_of_buffer"};
  for (const std::string_view name : names) {
    for (const auto& device : {sender_.device, receiver_.device}) {
      for (const rdma::RdmaCounter& counter : device->counters(port_)) {
        if (counter.name == name) return counter.value;
      }
    }
  }
  return 0;
}

}  // namespace hawser::lab
