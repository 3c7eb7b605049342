#include "transport/shm/shm_path.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

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
  const auto wrong = [](std::string_view text) {
    return fail(ErrorCode::invalid_argument, "ShmOptions::" + std::string(text), ErrorScope::transport);
  };
  if (!Sizes{options.ring_bytes, 0}.valid()) return wrong("ring_bytes is not a power of two from 64 KiB to 64 MiB");
  if (!Sizes{options.ring_bytes, options.slab_bytes}.valid()) {
    return wrong("slab_bytes is neither 0 nor a power of two from 16 KiB to 1 GiB");
  }
  if (options.eager_bytes > options.ring_bytes / 8) return wrong("eager_bytes is more than an eighth of ring_bytes");
  if (options.direct_read_bytes_min <= options.eager_bytes) {
    return wrong("direct_read_bytes_min is not more than eager_bytes");
  }
  if (options.early_publish_bytes == 0 || options.early_publish_bytes > options.ring_bytes) {
    return wrong("early_publish_bytes is 0 or more than ring_bytes");
  }
  if (options.connections_max == 0) return wrong("connections_max is 0");
  return {};
}

class ShmEnd;

// A place among the end's pending connections, later among its connections. Keeps the end.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<ShmEnd> end) noexcept;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

  // The peer has connected: from now on this counts as a connection. Fails if all places are taken.
  Result<void> connect();

 private:
  std::shared_ptr<ShmEnd> end_;
  bool connected_ = false;
};

class ShmEnd final : public PathEnd, public std::enable_shared_from_this<ShmEnd> {
 public:
  ShmEnd(Loop& loop, const ShmOptions& options, const Place& place, std::shared_ptr<Helpers> helpers, OwnProcess own)
      : loop_(loop), options_(options), place_(place), helpers_(std::move(helpers)), own_process_(own) {}

  std::vector<std::byte> offer() override {
    return encode(Offer{place_, options_.ring_bytes, options_.slab_bytes, options_.eager_bytes});
  }
  Result<std::unique_ptr<PathHalf>> propose(Bytes offer, const PathLimits& limits) override;
  Result<std::unique_ptr<PathHalf>> accept(Bytes server, const PathLimits& limits) override;

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
  const Place place_;
  const std::shared_ptr<Helpers> helpers_;
  const OwnProcess own_process_;
  const bool strict_ = SharedMemory::counted_strictly();
  // Each at most connections_max. Those who only offer take no place from those who connect.
  std::size_t pending_ = 0;
  std::size_t connections_ = 0;
};

Ticket::Ticket(std::shared_ptr<ShmEnd> end) noexcept : end_(std::move(end)) { ++end_->pending_; }
Ticket::~Ticket() { --(connected_ ? end_->connections_ : end_->pending_); }
Result<void> Ticket::connect() {
  if (Result<void> room = end_->check_room(); !room) return room;
  connected_ = true;
  --end_->pending_;
  ++end_->connections_;
  return {};
}

// What both halves have.
class ShmHalf : public PathHalf {
 public:
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    memory_->close_file();
    return std::make_unique<ShmConnection>(end_->loop(),
                                           Link{.side = side_,
                                                .memory = std::move(memory_),
                                                .bell = std::move(*bell_),
                                                .peer = std::move(peer_),
                                                .helpers = end_->helpers(),
                                                .options = options_,
                                                .limits = limits_,
                                                .end = std::move(ticket_)},
                                           std::move(stream));
  }

 protected:
  ShmHalf(ShmEnd& end, std::size_t side, const ShmOptions& options, const PathLimits& limits,
          std::shared_ptr<Ticket> ticket)
      : end_(end.shared_from_this()), side_(side), options_(options), limits_(limits), ticket_(std::move(ticket)) {}

  ~ShmHalf() override {
    if (bell_) end_->helpers()->dispose_socket(bell_->take());
  }

  Sizes sizes() const noexcept { return {options_.ring_bytes, options_.slab_bytes}; }
  const ShmOptions& options() const noexcept { return options_; }
  ShmEnd& end() const noexcept { return *end_; }
  Result<void> take_place() { return ticket_->connect(); }

  // `peer` has proved to be at the other end of `bell`: the kernel says so.
  void connected(Doorbell bell, const PeerIdentity& peer, std::shared_ptr<SharedMemory> memory) {
    // Our own memory may always be read, by ourselves: whoever could make us take ourselves for the peer would have it read.
    const bool readable =
        options_.direct_read_bytes_min != SIZE_MAX && (peer.pid != getpid() || end_->own_process() == OwnProcess::read);
    if (readable) {
      auto process = std::make_shared<const PeerProcess>(peer, bell);
      if (process->may_be_read()) peer_ = std::move(process);
    }
    // Offers to be read tell addresses. Of a process that may not be traced nobody else is to know them.
    if (prctl(PR_GET_DUMPABLE) != 1) options_.direct_read_bytes_min = SIZE_MAX;
    memory->control().sides[side_].reads.store(peer_ != nullptr ? 1 : 0, std::memory_order_relaxed);
    memory_ = std::move(memory);
    bell_.emplace(std::move(bell));
  }

 private:
  const std::shared_ptr<ShmEnd> end_;
  const std::size_t side_;
  ShmOptions options_;
  const PathLimits limits_;
  std::shared_ptr<Ticket> ticket_;
  std::shared_ptr<SharedMemory> memory_;
  std::optional<Doorbell> bell_;
  std::shared_ptr<const PeerProcess> peer_;
};

class ServerHalf final : public ShmHalf {
 public:
  ServerHalf(ShmEnd& end, MeetingSocket socket, const Token& secret, const ShmOptions& options,
             const PathLimits& limits, std::shared_ptr<Ticket> ticket)
      : ShmHalf(end, server_side, options, limits, std::move(ticket)), socket_(std::move(socket)), secret_(secret) {}
  ~ServerHalf() override { socket_.close(*end().helpers()); }

  std::vector<std::byte> parameters() const override {
    return encode(Proposal{socket_.name(), secret_, options().ring_bytes, options().slab_bytes, options().eager_bytes});
  }

  Result<void> connect(Bytes client) override {
    const Result<Answer> answer = decode_answer(client);
    if (!answer) return std::unexpected(answer.error());
    if (Result<void> taken = take_place(); !taken) return taken;
    Result<Arrival> arrival = socket_.accept(secret_, *end().helpers());
    if (!arrival) return std::unexpected(std::move(arrival.error()));
    Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::adopt(arrival->memory, sizes(), end().strict());
    if (!memory) {
      end().helpers()->dispose(std::move(arrival->memory));
      end().helpers()->dispose_socket(arrival->bell.take());
      return std::unexpected(std::move(memory.error()));
    }
    connected(std::move(arrival->bell), arrival->peer, std::move(*memory));
    return {};
  }

 private:
  MeetingSocket socket_;
  const Token secret_;
};

class ClientHalf final : public ShmHalf {
 public:
  ClientHalf(ShmEnd& end, const ShmOptions& options, const PathLimits& limits, std::shared_ptr<Ticket> ticket)
      : ShmHalf(end, client_side, options, limits, std::move(ticket)) {}

  Result<void> meet_server(const Proposal& proposal) {
    if (Result<void> taken = take_place(); !taken) return taken;
    Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::create(sizes(), end().strict());
    if (!memory) return std::unexpected(std::move(memory.error()));
    Result<Doorbell> bell = meet(proposal.socket, proposal.secret, (*memory)->fd());
    if (!bell) return std::unexpected(std::move(bell.error()));
    const Result<PeerIdentity> peer = identify(*bell);
    if (!peer) {
      end().helpers()->dispose_socket(bell->take());
      return std::unexpected(peer.error());
    }
    connected(std::move(*bell), *peer, std::move(*memory));
    return {};
  }

  std::vector<std::byte> parameters() const override { return encode(Answer{}); }
  Result<void> connect(Bytes) override {
    return fail(ErrorCode::invalid_argument, "a client's half is connected already", ErrorScope::connection);
  }
};

Result<void> ShmEnd::check_room() const {
  if (connections_ < options_.connections_max) return {};
  return fail(ErrorCode::overloaded,
              std::to_string(options_.connections_max) + " connections (ShmOptions::connections_max) use shared memory",
              ErrorScope::transport);
}

Result<std::shared_ptr<Ticket>> ShmEnd::enter() {
  if (Result<void> room = check_room(); !room) return std::unexpected(std::move(room.error()));
  if (pending_ >= options_.connections_max) {
    return fail(ErrorCode::overloaded,
                std::to_string(options_.connections_max) +
                    " connections (ShmOptions::connections_max) over shared memory are being made",
                ErrorScope::transport);
  }
  return std::make_shared<Ticket>(shared_from_this());
}

Result<std::unique_ptr<PathHalf>> ShmEnd::propose(Bytes bytes, const PathLimits& limits) {
  const Result<Offer> offer = decode_offer(bytes);
  if (!offer) return std::unexpected(offer.error());
  if (offer->place.boot != place_.boot) {
    return fail(ErrorCode::unavailable, "the client is on another host", ErrorScope::connection, Initiator::peer);
  }
  if (offer->place != place_) {
    return fail(
        ErrorCode::unavailable,
        "the client is in another network namespace: run both containers in one (docker run --network container:NAME)",
        ErrorScope::connection, Initiator::peer);
  }
  ShmOptions options = options_;
  options.ring_bytes = std::min(options.ring_bytes, std::size_t{offer->ring_bytes});
  options.slab_bytes = std::min(options.slab_bytes, std::size_t{offer->slab_bytes});
  options.eager_bytes = std::min({options.eager_bytes, std::size_t{offer->eager_bytes}, options.ring_bytes / 8});
  options.early_publish_bytes = std::min(options.early_publish_bytes, options.ring_bytes);
  const Sizes sizes{options.ring_bytes, options.slab_bytes};
  if (!sizes.valid()) {
    return fail(ErrorCode::protocol_error, "the client offers shared memory of sizes that can't be",
                ErrorScope::connection, Initiator::peer);
  }
  Result<std::shared_ptr<Ticket>> ticket = enter();
  if (!ticket) return std::unexpected(std::move(ticket.error()));
  if (!helpers_->may_receive()) {
    return fail(ErrorCode::overloaded,
                std::to_string(Helpers::disposals_max) +
                    " descriptors that peers have sent can't be closed: their file systems do not answer",
                ErrorScope::transport);
  }
  const Result<Token> secret = random_token();
  if (!secret) return std::unexpected(secret.error());
  Result<MeetingSocket> socket = MeetingSocket::listen();
  if (!socket) return std::unexpected(std::move(socket.error()));
  return std::make_unique<ServerHalf>(*this, std::move(*socket), *secret, options, limits, std::move(*ticket));
}

Result<std::unique_ptr<PathHalf>> ShmEnd::accept(Bytes bytes, const PathLimits& limits) {
  const Result<Proposal> proposal = decode_proposal(bytes);
  if (!proposal) return std::unexpected(proposal.error());
  ShmOptions options = options_;
  options.ring_bytes = std::size_t{proposal->ring_bytes};
  options.slab_bytes = std::size_t{proposal->slab_bytes};
  options.eager_bytes = std::size_t{proposal->eager_bytes};
  options.early_publish_bytes = std::min(options.early_publish_bytes, options.ring_bytes);
  const Sizes sizes{options.ring_bytes, options.slab_bytes};
  if (options.ring_bytes > options_.ring_bytes || options.slab_bytes > options_.slab_bytes ||
      options.eager_bytes > options_.eager_bytes || options.eager_bytes > options.ring_bytes / 8 || !sizes.valid()) {
    return fail(ErrorCode::protocol_error, "the server proposes shared memory of sizes that were not offered",
                ErrorScope::connection, Initiator::peer);
  }
  Result<std::shared_ptr<Ticket>> ticket = enter();
  if (!ticket) return std::unexpected(std::move(ticket.error()));
  auto half = std::make_unique<ClientHalf>(*this, options, limits, std::move(*ticket));
  if (Result<void> done = half->meet_server(*proposal); !done) return std::unexpected(std::move(done.error()));
  return half;
}

class ShmPath final : public DataPath {
 public:
  ShmPath(const ShmOptions& options, OwnProcess own) : options_(options), own_process_(own) {}

  std::string_view name() const noexcept override { return shm::name; }

  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    if (Result<void> checked = check(options_); !checked) return std::unexpected(std::move(checked.error()));
    const std::lock_guard lock(mutex_);
    std::weak_ptr<ShmEnd>& known = ends_[&loop];
    if (std::shared_ptr<ShmEnd> end = known.lock()) return end;
    const Result<Place> place = Place::here();
    if (!place) return std::unexpected(place.error());
    // A child of the process that made this path has no threads.
    if (!helpers_->is_ours()) helpers_ = std::make_shared<Helpers>();
    auto end = std::make_shared<ShmEnd>(loop, options_, *place, helpers_, own_process_);
    std::erase_if(ends_, [](const auto& one) { return one.second.expired(); });
    ends_[&loop] = end;
    return end;
  }

 private:
  const ShmOptions options_;
  const OwnProcess own_process_;
  std::mutex mutex_;  // Guards the rest.
  std::shared_ptr<Helpers> helpers_ = std::make_shared<Helpers>();
  std::unordered_map<Loop*, std::weak_ptr<ShmEnd>> ends_;
};

}  // namespace
}  // namespace shm

std::shared_ptr<DataPath> make_shm_path(const ShmOptions& options, OwnProcess own) {
  return std::make_shared<shm::ShmPath>(options, own);
}

}  // namespace hawser::transport
