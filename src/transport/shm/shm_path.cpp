#include "transport/shm/shm_path.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "hawser/loop.h"
#include "transport/shm/handshake.h"
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

// A place among the end's connections, which keeps the end.
class Ticket {
 public:
  explicit Ticket(std::shared_ptr<ShmEnd> end) noexcept;
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket();

 private:
  std::shared_ptr<ShmEnd> end_;
};

class ShmEnd final : public PathEnd, public std::enable_shared_from_this<ShmEnd> {
 public:
  ShmEnd(Loop& loop, const ShmOptions& options, const Place& place) : loop_(loop), options_(options), place_(place) {}

  std::vector<std::byte> offer() override {
    return encode(Offer{place_, options_.ring_bytes, options_.slab_bytes, options_.eager_bytes});
  }
  Result<std::unique_ptr<PathHalf>> propose(Bytes offer, const PathLimits& limits) override;
  Result<std::unique_ptr<PathHalf>> accept(Bytes server, const PathLimits& limits) override;

  Loop& loop() const noexcept { return loop_; }

 private:
  friend class Ticket;
  Result<std::shared_ptr<Ticket>> enter();

  Loop& loop_;
  const ShmOptions options_;
  const Place place_;
  std::size_t connections_ = 0;
};

Ticket::Ticket(std::shared_ptr<ShmEnd> end) noexcept : end_(std::move(end)) { ++end_->connections_; }
Ticket::~Ticket() { --end_->connections_; }

// Tries whether the peer's memory may be read, by reading the nonce there.
bool can_read(const PeerProcess& peer, std::uint64_t address, const Nonce& nonce) {
  Nonce found{};
  const RemotePiece piece{address, found.size()};
  return peer.read(std::span(&piece, 1), found).has_value() && found == nonce;
}

class ShmHalf final : public PathHalf {
 public:
  ShmHalf(Loop& loop, std::size_t side, std::shared_ptr<SharedMemory> memory, Doorbell bell, const ShmOptions& options,
          const PathLimits& limits, const Nonce& nonce, std::shared_ptr<Ticket> ticket)
      : loop_(loop),
        side_(side),
        memory_(std::move(memory)),
        bell_(std::move(bell)),
        options_(options),
        limits_(limits),
        nonce_(nonce),
        ticket_(std::move(ticket)) {}

  std::vector<std::byte> parameters() const override {
    const auto pid = static_cast<std::uint32_t>(getpid());
    const auto memory = static_cast<std::uint32_t>(memory_->fd());
    const auto bell = static_cast<std::uint32_t>(bell_.fd());
    const auto probe = reinterpret_cast<std::uintptr_t>(nonce_.data());
    if (side_ == client_side) return encode(Answer{pid, memory, bell, probe});
    return encode(
        Proposal{pid, memory, bell, nonce_, options_.ring_bytes, options_.slab_bytes, options_.eager_bytes, probe});
  }

  Result<void> connect(Bytes client) override {
    const Result<Answer> answer = decode_answer(client);
    if (!answer) return std::unexpected(answer.error());
    return connect_to(answer->pid, answer->memory_fd, answer->bell_fd, answer->probe_address);
  }

  Result<void> connect_to(std::uint32_t pid, std::uint32_t memory_fd, std::uint32_t bell_fd, std::uint64_t probe) {
    PeerProcess peer(static_cast<pid_t>(pid));
    // The peer is who has our object: nobody else's memory and descriptors are touched.
    if (!memory_->is_held_by(peer.pid(), static_cast<int>(memory_fd))) {
      return fail(ErrorCode::unavailable,
                  "the client does not have our shared memory, or its /proc entry can't be read (both processes must "
                  "run as the same user)",
                  ErrorScope::connection, Initiator::peer);
    }
    Result<Doorbell> bell = Doorbell::open(peer.pid(), static_cast<int>(bell_fd));
    if (!bell) return std::unexpected(std::move(bell.error()));
    const bool reads = options_.direct_read_bytes_min != SIZE_MAX && can_read(peer, probe, nonce_);
    memory_->control().sides[side_].reads.store(reads ? 1 : 0, std::memory_order_relaxed);
    peer_.emplace(std::move(peer));
    peer_bell_.emplace(std::move(*bell));
    return {};
  }

  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    memory_->close_file();
    return std::make_unique<ShmConnection>(loop_,
                                           Link{.side = side_,
                                                .memory = std::move(memory_),
                                                .own_bell = std::move(bell_),
                                                .peer_bell = std::move(*peer_bell_),
                                                .peer = std::move(*peer_),
                                                .options = options_,
                                                .limits = limits_,
                                                .end = std::move(ticket_)},
                                           std::move(stream));
  }

 private:
  Loop& loop_;
  const std::size_t side_;
  std::shared_ptr<SharedMemory> memory_;
  Doorbell bell_;
  const ShmOptions options_;
  const PathLimits limits_;
  const Nonce nonce_;
  std::shared_ptr<Ticket> ticket_;
  std::optional<PeerProcess> peer_;
  std::optional<Doorbell> peer_bell_;
};

Result<std::shared_ptr<Ticket>> ShmEnd::enter() {
  if (connections_ >= options_.connections_max) {
    return fail(
        ErrorCode::overloaded,
        std::to_string(options_.connections_max) + " connections (ShmOptions::connections_max) use shared memory",
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
    return fail(ErrorCode::unavailable,
                "the client has another namespace of process numbers: run both containers in one (--pid)",
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
  Nonce nonce{};
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size())) {
    return std::unexpected(system_error(ErrorCode::unavailable, "cannot get random numbers", errno));
  }
  Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::create(sizes, nonce);
  if (!memory) return std::unexpected(std::move(memory.error()));
  Result<Doorbell> bell = Doorbell::create();
  if (!bell) return std::unexpected(std::move(bell.error()));
  return std::make_unique<ShmHalf>(loop_, server_side, std::move(*memory), std::move(*bell), options, limits, nonce,
                                   std::move(*ticket));
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
  Result<std::shared_ptr<SharedMemory>> memory = SharedMemory::open(
      static_cast<pid_t>(proposal->pid), static_cast<int>(proposal->memory_fd), sizes, proposal->nonce);
  if (!memory) return std::unexpected(std::move(memory.error()));
  Result<Doorbell> bell = Doorbell::create();
  if (!bell) return std::unexpected(std::move(bell.error()));
  auto half = std::make_unique<ShmHalf>(loop_, client_side, std::move(*memory), std::move(*bell), options, limits,
                                        proposal->nonce, std::move(*ticket));
  if (Result<void> done =
          half->connect_to(proposal->pid, proposal->memory_fd, proposal->bell_fd, proposal->probe_address);
      !done) {
    return std::unexpected(std::move(done.error()));
  }
  return half;
}

class ShmPath final : public DataPath {
 public:
  explicit ShmPath(const ShmOptions& options) : options_(options) {}

  std::string_view name() const noexcept override { return shm::name; }

  Result<std::shared_ptr<PathEnd>> attach(Loop& loop) override {
    if (Result<void> checked = check(options_); !checked) return std::unexpected(std::move(checked.error()));
    const std::lock_guard lock(mutex_);
    std::weak_ptr<ShmEnd>& known = ends_[&loop];
    if (std::shared_ptr<ShmEnd> end = known.lock()) return end;
    const Result<Place> place = Place::here();
    if (!place) return std::unexpected(place.error());
    auto end = std::make_shared<ShmEnd>(loop, options_, *place);
    std::erase_if(ends_, [](const auto& one) { return one.second.expired(); });
    ends_[&loop] = end;
    return end;
  }

 private:
  const ShmOptions options_;
  std::mutex mutex_;
  std::unordered_map<Loop*, std::weak_ptr<ShmEnd>> ends_;
};

}  // namespace
}  // namespace shm

std::shared_ptr<DataPath> make_shm_path(const ShmOptions& options) { return std::make_shared<shm::ShmPath>(options); }

}  // namespace hawser::transport
