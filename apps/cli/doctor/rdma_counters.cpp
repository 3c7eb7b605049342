#include "cli/doctor/rdma_counters.h"

#include <algorithm>
#include <array>

namespace hawser::cli::doctor {
namespace {

constexpr std::string_view not_ready_remedy =
    "senders with credits never cause this; a peer that ignores its credits does, where connections share their "
    "receives, "
    "until its connection is ended: look for such peers and for other users of the device, or report it";
constexpr std::string_view loss_remedy =
    "packets are lost on the way: configure PFC or ECN for RoCE in NIC and switches, and see "
    "RdmaOptions::traffic_class";
constexpr std::string_view cable_remedy = "check cable, optics and switch port";
// Names of the error counters of mlx5, bnxt_re, irdma and rxe.
constexpr std::array troubles = {
    Trouble{"rnr_nak_retry_err", "a peer had no receive posted", not_ready_remedy},
    Trouble{"out_of_buffer", "packets came that no receive was posted for", not_ready_remedy},
    Trouble{"send_rnr_err", "packets came that no receive was posted for", not_ready_remedy},
    Trouble{"rcvd_rnr_err", "a peer had no receive posted", not_ready_remedy},
    Trouble{"retry_rnr_exceeded_err", "a peer had no receive posted for too long", not_ready_remedy},
    Trouble{"local_ack_timeout_err", "acknowledgements did not come in time", loss_remedy},
    Trouble{"packet_seq_err", "peers saw gaps in our packets", loss_remedy},
    Trouble{"rcvd_seq_err", "peers saw gaps in our packets", loss_remedy},
    Trouble{"out_of_sequence", "gaps in the packets that came", loss_remedy},
    Trouble{"out_of_seq_request", "gaps in the packets that came", loss_remedy},
    Trouble{"retry_exceeded_err", "peers did not answer at all", loss_remedy},
    Trouble{"rx_icrc_encapsulated", "packets came damaged", cable_remedy},
    Trouble{"symbol_error", "the link receives damaged symbols", cable_remedy},
    Trouble{"link_downed", "the link went down", cable_remedy},
    Trouble{"port_rcv_errors", "packets came damaged", cable_remedy},
    Trouble{"np_cnp_sent", "congestion was notified to peers", "bandwidth is short on the way here: see the switches"},
    Trouble{"rp_cnp_handled", "peers notified us of congestion", "bandwidth is short on the way: see the switches"},
};

}  // namespace

const Trouble* trouble_of(std::string_view counter) noexcept {
  const auto found = std::find_if(troubles.begin(), troubles.end(),
                                  [&](const Trouble& trouble) { return trouble.counter == counter; });
  return found == troubles.end() ? nullptr : found;
}

}  // namespace hawser::cli::doctor
