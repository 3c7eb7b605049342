#include "transport/shm/shm_transport.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "transport/shm/handshake.h"
#include "transport/shm/helpers.h"
#include "transport/shm/meeting.h"
#include "transport/shm/shm_connection.h"

namespace hawser::transport {
namespace shm {
namespace {

constexpr std::string_view name = "shm";

Result<void> check(const ShmOptions& options) {
  const auto wrong = [](std::string_view option, std::size_t value, std::string_view wanted) {
    return fail(Error::of_transport(ErrorCode::invalid_argument, "ShmOptions::" + std::string(option) + " is " +
                                                                     std::to_string(value) + ", and must be " +
                                                                     std::string(wanted)));
  };
  const auto of_ring = [&](std::string_view part) {
    return std::string(part) + "ring_bytes (" + std::to_string(options.ring_bytes) + ")";
  };
  if (!Sizes{options.ring_bytes, 0}.valid()) {
    return wrong("ring_bytes", options.ring_bytes, "a power of two from 64 KiB to 64 MiB");
  }
  if (!Sizes{options.ring_bytes, options.slab_bytes}.valid()) {
    return wrong("slab_bytes", options.slab_bytes, "0 or a power of two from 16 KiB to 1 GiB");
  }
  if (options.eager_bytes > options.ring_bytes / 8) {
    return wrong("eager_bytes", options.eager_bytes, of_ring("at most an eighth of "));
  }
  if (options.direct_read_bytes_min <= options.eager_bytes) {
    return wrong("direct_read_bytes_min", options.direct_read_bytes_min,
                 "more than eager_bytes (" + std::to_string(options.eager_bytes) + ")");
  }
  if (options.early_publish_bytes == 0 || options.early_publish_bytes > options.ring_bytes) {
    return wrong("early_publish_bytes", options.early_publish_bytes, of_ring("from 1 to "));
  }
  if (options.connections_max == 0) return wrong("connections_max", 0, "at least 1");
  return {};
}

class ShmWorker;

// A place among the worker's pending connections, and later among its connections. Keeps the worker alive.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<ShmWorker> worker) noexcept;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

  // The peer has connected: from now on this place counts as a connection. Fails if all places are taken.
  Result<void> connect();

 private:
  std::shared_ptr<ShmWorker> worker_;
  bool connected_ = false;
};

class ShmWorker final : public TransportWorker, public std::enable_shared_from_this<ShmWorker> {
 public:
  ShmWorker(Loop& loop, const ShmOptions& options, const HostIdentity& host, std::shared_ptr<Helpers> helpers,
            OwnProcess own)
      : loop_(loop), options_(options), host_(host), helpers_(std::move(helpers)), own_process_(own) {}

  std::vector<std::byte> offer() override {
    return encode(ShmOffer{host_, options_.ring_bytes, options_.slab_bytes, options_.eager_bytes});
  }
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override;

  Loop& loop() const noexcept { return loop_; }
  const std::shared_ptr<Helpers>& helpers() const noexcept { return helpers_; }
  bool strict() const noexcept { return strict_; }
  OwnProcess own_process() const noexcept { return own_process_; }

 private:
  friend class Ticket;
  Result<void> check_room() const;
  Result<std::shared_ptr<Ticket>> enter();

  Loop& loop_;
  const ShmOptions options_;
  const HostIdentity host_;
  const std::shared_ptr<Helpers> helpers_;
  const OwnProcess own_process_;
  const bool strict_ = SharedMemory::counted_strictly();
  // Each is limited by connections_max. Clients that only offer do not take places from clients that connect.
  std::size_t pending_ = 0;
  std::size_t connections_ = 0;
};

Ticket::Ticket(std::shared_ptr<ShmWorker> worker) noexcept : worker_(std::move(worker)) { ++worker_->pending_; }
Ticket::~Ticket() { --(connected_ ? worker_->connections_ : worker_->pending_); }
Result<void> Ticket::connect() {
  TRY(worker_->check_room());
  connected_ = true;
  --worker_->pending_;
  ++worker_->connections_;
  return {};
}

// The common part of both pending connections.
class ShmPendingConnection : public PendingConnection {
 public:
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    memory_->close_file();
    return std::make_unique<ShmConnection>(worker_->loop(),
                                           Link{.side = side_,
                                                .memory = std::move(memory_),
                                                .bell = std::move(*bell_),
                                                .peer = std::move(peer_),
                                                .identity = std::move(identity_),
                                                .helpers = worker_->helpers(),
                                                .options = options_,
                                                .limits = limits_,
                                                .worker = std::move(ticket_)},
                                           std::move(stream));
  }

 protected:
  ShmPendingConnection(ShmWorker& worker, std::size_t side, const ShmOptions& options, const MessageLimits& limits,
                       std::shared_ptr<Ticket> ticket)
      : worker_(worker.shared_from_this()),
        side_(side),
        options_(options),
        limits_(limits),
        ticket_(std::move(ticket)) {}

  ~ShmPendingConnection() override {
    if (bell_) worker_->helpers()->dispose_socket(bell_->take());
  }

  Sizes sizes() const noexcept { return {options_.ring_bytes, options_.slab_bytes}; }
  const ShmOptions& options() const noexcept { return options_; }
  ShmWorker& worker() const noexcept { return *worker_; }
  Result<void> take_place() { return ticket_->connect(); }

  // The kernel reports `peer` as the process at the other end of `bell`.
  void connected(Doorbell bell, const PeerIdentity& peer, std::shared_ptr<SharedMemory> memory) {
    // A process could always read its own memory. Somebody who makes this process regard itself as the peer would have
    // it read its own memory.
    const bool readable = options_.direct_read_bytes_min != SIZE_MAX &&
                          (peer.pid != getpid() || worker_->own_process() == OwnProcess::read);
    if (readable) {
      auto process = std::make_shared<const PeerProcess>(peer, bell);
      if (process->may_be_read()) peer_ = std::move(process);
    }
    // An offer to be read contains addresses. Nobody else may learn the addresses of a process that must not be traced.
    if (prctl(PR_GET_DUMPABLE) != 1) options_.direct_read_bytes_min = SIZE_MAX;
    memory->control().sides[side_].reads.store(peer_ != nullptr ? 1 : 0, std::memory_order_relaxed);
    memory_ = std::move(memory);
    bell_.emplace(std::move(bell));
    Identity identity;
    identity.kind = Identity::Kind::unix_peer;
    identity.pid = peer.pid;
    identity.uid = peer.uid;
    identity.gid = peer.gid;
    identity_ = std::make_shared<const Identity>(std::move(identity));
  }

 private:
  const std::shared_ptr<ShmWorker> worker_;
  const std::size_t side_;
  ShmOptions options_;
  const MessageLimits limits_;
  std::shared_ptr<Ticket> ticket_;
  std::shared_ptr<SharedMemory> memory_;
  std::optional<Doorbell> bell_;
  std::shared_ptr<const PeerProcess> peer_;
  std::shared_ptr<const Identity> identity_;
};

class ServerPendingConnection final : public ShmPendingConnection {
 public:
  ServerPendingConnection(ShmWorker& worker, MeetingSocket socket, const Token& secret, const ShmOptions& options,
                          const MessageLimits& limits, std::shared_ptr<Ticket> ticket)
      : ShmPendingConnection(worker, server_side, options, limits, std::move(ticket)),
        socket_(std::move(socket)),
        secret_(secret) {}
  ~ServerPendingConnection() override { socket_.close(*worker().helpers()); }

  std::vector<std::byte> parameters() const override {
    return encode(
        Selection{socket_.name(), secret_, options().ring_bytes, options().slab_bytes, options().eager_bytes});
  }

  void connect(Bytes client, Ready ready) override { ready(meet_client(client)); }

 private:
  Result<void> meet_client(Bytes client) {
    TRY(decode_answer(client));
    TRY(take_place());
    TRY(MetPeer&& arrival, socket_.accept(secret_, *worker().helpers()));
    Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::adopt(arrival.memory, sizes(), worker().strict());
    if (!memory) {
      worker().helpers()->dispose(std::move(arrival.memory));
      worker().helpers()->dispose_socket(arrival.bell.take());
      return fail(std::move(memory.error()));
    }
    connected(std::move(arrival.bell), arrival.peer, std::move(*memory));
    return {};
  }

  MeetingSocket socket_;
  const Token secret_;
};

class ClientPendingConnection final : public ShmPendingConnection {
 public:
  ClientPendingConnection(ShmWorker& worker, const ShmOptions& options, const MessageLimits& limits,
                          std::shared_ptr<Ticket> ticket)
      : ShmPendingConnection(worker, client_side, options, limits, std::move(ticket)) {}

  Result<void> meet_server(const Selection& selection) {
    TRY(take_place());
    TRY(std::shared_ptr<SharedMemory> memory, SharedMemory::create(sizes(), worker().strict()));
    TRY(Doorbell&& bell, meet(selection.socket, selection.secret, memory->fd()));
    const Result<PeerIdentity> peer = identify(bell);
    if (!peer) {
      worker().helpers()->dispose_socket(bell.take());
      return fail(peer.error());
    }
    connected(std::move(bell), *peer, std::move(memory));
    return {};
  }

  std::vector<std::byte> parameters() const override { return encode(ShmAnswer{}); }
  void connect(Bytes, Ready ready) override {
    ready(fail(Error::of_connection(ErrorCode::invalid_argument, "a client's half is connected already")));
  }
};

Result<void> ShmWorker::check_room() const {
  if (connections_ < options_.connections_max) return {};
  return fail(Error::of_transport(ErrorCode::overloaded, "shared memory has " +
                                                             count_text(options_.connections_max, "connection") +
                                                             " already (ShmOptions::connections_max)"));
}

Result<std::shared_ptr<Ticket>> ShmWorker::enter() {
  TRY(check_room());
  if (pending_ >= options_.connections_max) {
    return fail(Error::of_transport(ErrorCode::overloaded, "shared memory opens " +
                                                               count_text(options_.connections_max, "connection") +
                                                               " already (ShmOptions::connections_max)"));
  }
  return std::make_shared<Ticket>(shared_from_this());
}

Result<std::unique_ptr<PendingConnection>> ShmWorker::select(Bytes bytes, const MessageLimits& limits) {
  TRY(const ShmOffer& offer, decode_offer(bytes));
  if (offer.host.boot != host_.boot) {
    return fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "the client is on another host"));
  }
  if (offer.host != host_) {
    return fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                     "the client is in another network namespace: run both containers in one (docker "
                                     "run --network container:NAME)"));
  }
  ShmOptions options = options_;
  options.ring_bytes = std::min(options.ring_bytes, std::size_t{offer.ring_bytes});
  options.slab_bytes = std::min(options.slab_bytes, std::size_t{offer.slab_bytes});
  options.eager_bytes = std::min({options.eager_bytes, std::size_t{offer.eager_bytes}, options.ring_bytes / 8});
  options.early_publish_bytes = std::min(options.early_publish_bytes, options.ring_bytes);
  const Sizes sizes{options.ring_bytes, options.slab_bytes};
  if (!sizes.valid()) {
    return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                     "the client offers shared memory of sizes that can't be"));
  }
  TRY(std::shared_ptr<Ticket> ticket, enter());
  if (!helpers_->may_receive()) {
    return fail(
        Error::of_transport(ErrorCode::overloaded,
                            std::to_string(Helpers::disposals_max) +
                                " descriptors that peers have sent can't be closed: their file systems do not answer"));
  }
  TRY(const Token& secret, random_token());
  TRY(MeetingSocket&& socket, MeetingSocket::listen());
  return std::make_unique<ServerPendingConnection>(*this, std::move(socket), secret, options, limits,
                                                   std::move(ticket));
}

Result<std::unique_ptr<PendingConnection>> ShmWorker::accept(Bytes bytes, const MessageLimits& limits) {
  TRY(const Selection& selection, decode_selection(bytes));
  ShmOptions options = options_;
  options.ring_bytes = std::size_t{selection.ring_bytes};
  options.slab_bytes = std::size_t{selection.slab_bytes};
  options.eager_bytes = std::size_t{selection.eager_bytes};
  options.early_publish_bytes = std::min(options.early_publish_bytes, options.ring_bytes);
  const Sizes sizes{options.ring_bytes, options.slab_bytes};
  if (options.ring_bytes > options_.ring_bytes || options.slab_bytes > options_.slab_bytes ||
      options.eager_bytes > options_.eager_bytes || options.eager_bytes > options.ring_bytes / 8 || !sizes.valid()) {
    return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                     "the server proposes shared memory of sizes that were not offered"));
  }
  TRY(std::shared_ptr<Ticket> ticket, enter());
  auto pending = std::make_unique<ClientPendingConnection>(*this, options, limits, std::move(ticket));
  TRY(pending->meet_server(selection));
  return pending;
}

class ShmTransport final : public Transport {
 public:
  ShmTransport(const ShmOptions& options, OwnProcess own) : options_(options), own_process_(own) {}

  std::string_view name() const noexcept override { return shm::name; }

  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    TRY(check(options_));
    const std::lock_guard lock(mutex_);
    std::weak_ptr<ShmWorker>& known = workers_[&loop];
    if (std::shared_ptr<ShmWorker> worker = known.lock()) return worker;
    TRY(const HostIdentity& host, HostIdentity::here());
    // A child of the process that made this transport has no threads.
    if (!helpers_->is_ours()) helpers_ = std::make_shared<Helpers>();
    auto worker = std::make_shared<ShmWorker>(loop, options_, host, helpers_, own_process_);
    std::erase_if(workers_, [](const auto& one) { return one.second.expired(); });
    workers_[&loop] = worker;
    return worker;
  }

 private:
  const ShmOptions options_;
  const OwnProcess own_process_;
  std::mutex mutex_;  // Guards the members below.
  std::shared_ptr<Helpers> helpers_ = std::make_shared<Helpers>();
  std::unordered_map<Loop*, std::weak_ptr<ShmWorker>> workers_;
};

}  // namespace
}  // namespace shm

std::shared_ptr<Transport> make_shm_transport(const ShmOptions& options, OwnProcess own) {
  return std::make_shared<shm::ShmTransport>(options, own);
}

}  // namespace hawser::transport
