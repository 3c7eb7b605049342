#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>

#include "block/nbd/exports.h"
#include "block/nbd/memory_holder.h"
#include "block/nbd/nbd_input.h"
#include "block/nbd/nbd_peer.h"
#include "block/nbd/negotiation.h"
#include "block/nbd/reply_queue.h"
#include "block/nbd/request.h"
#include "block/nbd/request_admission.h"
#include "hawser/scope.h"
#include "hawser/socket_stream.h"
#include "hawser/sync.h"
#include "hawser/time.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"

namespace hawser::block::nbd {

// Limits of one connection. Requests beyond them are not received before others have been answered.
struct SessionLimits {
  std::size_t requests_in_flight_max = 256;
  std::size_t bytes_in_flight_max = std::size_t{64} << 20;  // Data of reads and writes. At least payload_bytes_max.
  // The negotiation, and the rest of the replies after a disconnect, take no longer.
  Duration handshake_timeout = std::chrono::seconds(30);
};

// One connection of a client: the negotiation, then requests that run concurrently. Replies are sent in the order in
// which the requests end.
class NbdSession final : exec::TickEnd {
 public:
  // `memory` has the permits of the bytes of all connections: payload_bytes_max at least.
  // `security`: null without TLS.
  NbdSession(Loop& loop, SocketStream socket, NbdPeer peer, Exports& exports, Semaphore& memory,
             const SessionLimits& limits, std::shared_ptr<transport::ServerSecurity> security);
  ~NbdSession();

  // Ends when the connection has ended, and all of its requests. Called once.
  Task<void> run();
  // No more requests are received; the others are answered.
  void stop();
  void abort() noexcept;

  const std::optional<RequestAdmission::Waiting>& waiting() const noexcept { return admission_.waiting(); }
  // Memory that others cannot use because of the client: it has not sent a write completely or has not received
  // replies.
  NbdMemoryHolder holder(Duration silence_max) const noexcept;
  // Called again and again, for holder(). See HolderPace::observe().
  void observe_pace(std::size_t bytes_min) noexcept;
  // For the choice of a connection that ends because others wait for its place.
  const NbdPeer& peer() const noexcept { return negotiation_.peer(); }
  // Since the client has sent or received something, or a request has ended.
  Duration idle(Time now) const noexcept { return activity_.idle(now); }
  bool ended() const noexcept { return socket_.broken(); }
  // Ends the connection if the rules do not permit any more what they permitted when the client connected.
  void check_rights();

 private:
  // Limits of requests that are executed without a task: the data of one, and the batches of replies that are sent
  // before the next receive.
  static constexpr std::size_t run_now_bytes_max = 64 * 1024;
  static_assert(run_now_bytes_max < std::min(NbdInput::contiguous_bytes_max, ReplyBatch::bytes_max));
  static constexpr unsigned batches_max = 8;

  Task<bool> transmit();
  bool can_run_now(const NbdRequest& request) const;
  bool run_now(const NbdRequest& request);
  Permit acquire_slot_now(std::size_t reply_bytes);
  Task<bool> begin(NbdRequest request);
  Task<bool> refuse(std::unique_ptr<PendingRequest> pending, Refusal refusal);
  Task<Result<void>> fill(std::size_t missing = 0);
  Task<bool> receive_data(MutableBytes into);
  Task<bool> skip_data();
  Task<void> execute(std::unique_ptr<PendingRequest> pending);
  Task<Result<void>> run_request(PendingRequest& pending);
  Task<Result<void>> read_extents(PendingRequest& pending);
  void answer_with(const Result<void>& done, std::unique_ptr<PendingRequest> pending);
  void answer(std::unique_ptr<PendingRequest> pending);

  std::size_t held_bytes() const noexcept { return replies_.held_bytes() + incomplete_bytes_; }
  Task<void> watch_socket();
  Task<void> send_rest();
  void on_tick_end() override;
  void on_timeout() noexcept { abort(); }

  Loop& loop_;
  const Duration handshake_timeout_;
  SocketStream socket_;
  NbdInput input_;
  NbdNegotiation negotiation_;
  std::shared_ptr<NbdDevice> device_;  // Null before the negotiation has ended.
  RequestReader reader_;
  RequestAdmission admission_;
  unsigned batches_left_ = batches_max;
  ReplyQueue replies_;
  std::stop_source stopping_;  // Ends waiting for permits, so that no request begins after it.
  bool sending_ = false;       // send_rest() runs.
  bool disconnected_ = false;  // The client has sent NBD_CMD_DISC: its requests are executed, whether it reads or not.
  std::size_t incomplete_bytes_ = 0;  // Memory of a write whose data have not arrived completely.
  ClientActivity activity_;
  MemberTimer<&NbdSession::on_timeout> timer_{*this};
  Scope requests_;
  Scope watches_;  // They wait for events of the socket.
};

}  // namespace hawser::block::nbd
