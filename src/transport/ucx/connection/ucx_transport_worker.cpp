#include "transport/ucx/connection/ucx_transport_worker.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_fields.h"
#include "base/try.h"
#include "hawser/crc32c.h"
#include "hawser/timer.h"

namespace hawser::transport {
namespace {

constexpr std::uint16_t version = 1;

std::string_view name_of(UcxWireUp wire_up) { return wire_up == UcxWireUp::listener ? "listener" : "worker_address"; }
std::string_view name_of(UcxErrorMode mode) { return mode == UcxErrorMode::peer ? "peer" : "none"; }

std::unexpected<Error> malformed(std::string_view what) {
  return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                   "the peer's UCX " + std::string(what) + " is not well-formed"));
}

// Reserves the checksum at the beginning. UCX does not check addresses, so a damaged one must not reach it.
ByteWriter sealable() {
  ByteWriter writer;
  writer.number(std::uint32_t{0});
  return writer;
}
std::vector<std::byte> seal(ByteWriter& writer) {
  return writer.replace(0, crc32c(0, writer.written().subspan(4))).take();
}
// Returns the bytes that follow the checksum, or nothing if the checksum is wrong.
Bytes unseal(Bytes bytes) noexcept {
  ByteReader reader(bytes);
  const auto checksum = reader.number<std::uint32_t>();
  const Bytes rest = reader.rest();
  return reader.complete() && checksum == crc32c(0, rest) ? rest : Bytes();
}

Result<void> same(const UcxOptions& ours, UcxWireUp wire_up, UcxErrorMode error_mode) {
  const auto differ = [](std::string_view field, std::string_view our, std::string_view theirs) {
    return fail(Error::of_connection(ErrorCode::invalid_argument,
                                     "UcxOptions::" + std::string(field) + " is " + std::string(our) + " here and " +
                                         std::string(theirs) + " with the peer: set it alike"));
  };
  if (wire_up != ours.wire_up) return differ("wire_up", name_of(ours.wire_up), name_of(wire_up));
  if (error_mode != ours.error_mode) return differ("error_mode", name_of(ours.error_mode), name_of(error_mode));
  return {};
}

}  // namespace

// ---- UcxParameters ----
//
// Format: u32 CRC32C of the rest, u16 version, u8 wire-up, u8 error mode, u64 token, u32 window, u32 minimum payload of
// a rendezvous, u32 0, u32 length of the address, the address.

std::vector<std::byte> UcxParameters::store() const {
  ByteWriter writer = sealable();
  writer.number(version)
      .number(static_cast<std::uint8_t>(wire_up))
      .number(static_cast<std::uint8_t>(error_mode))
      .number(peer.token)
      .number(static_cast<std::uint32_t>(peer.window_bytes))
      .number(static_cast<std::uint32_t>(peer.rendezvous_bytes_min))
      .zeros(4)
      .number(static_cast<std::uint32_t>(address.size()))
      .bytes(address);
  return seal(writer);
}

Result<UcxParameters> UcxParameters::load(Bytes bytes) {
  ByteReader reader(unseal(bytes));
  const auto theirs = reader.number<std::uint16_t>();
  const auto wire_up = reader.number<std::uint8_t>();
  const auto error_mode = reader.number<std::uint8_t>();
  ucx::UcxPeer peer;
  peer.token = reader.number<std::uint64_t>();
  peer.window_bytes = reader.number<std::uint32_t>();
  peer.rendezvous_bytes_min = reader.number<std::uint32_t>();
  reader.bytes(4);  // Reserved.
  const auto address_bytes = reader.number<std::uint32_t>();
  const Bytes address = reader.bytes(address_bytes);
  if (!reader.finished()) return malformed("half");
  if (theirs != version) return malformed("half, or of another version,");
  if (wire_up > 1 || error_mode > 1 || peer.window_bytes < UcxOptions::window_bytes_min ||
      peer.window_bytes > UcxOptions::window_bytes_max ||
      peer.rendezvous_bytes_min < UcxOptions::rendezvous_bytes_least ||
      peer.rendezvous_bytes_min > UcxOptions::rendezvous_bytes_most) {
    return malformed("half");
  }
  return UcxParameters{.peer = peer,
                       .wire_up = static_cast<UcxWireUp>(wire_up),
                       .error_mode = static_cast<UcxErrorMode>(error_mode),
                       .address = {address.begin(), address.end()}};
}

// ---- UcxTransportWorker ----

class UcxPendingConnection final : public PendingConnection, public UcxHalfOpen::Waiter {
 public:
  UcxPendingConnection(std::shared_ptr<UcxWorker> worker, std::unique_ptr<UcxConnection> connection,
                       std::string host = {})
      : worker_(std::move(worker)), connection_(std::move(connection)), host_(std::move(host)) {}

  // Waits for a place from when_ready() on.
  UcxPendingConnection(std::shared_ptr<UcxTransportWorker> worker, const MessageLimits& limits, std::string host)
      : waits_on_(std::move(worker)), limits_(limits), host_(std::move(host)) {}

  void when_ready(Ready ready) override {
    if (connection_ != nullptr) return ready({});
    if (!waits_on_->half_open().wait(*this)) return ready(waits_on_->half_open().refusal());
    ready_ = std::move(ready);
    patience_.start(waits_on_->loop(), waits_on_->loop().after(UcxHalfOpen::wait_max));
  }
  std::vector<std::byte> parameters() const override {
    const UcxOptions& options = worker_->options();
    Bytes address = worker_->address();
    const std::string listener = listener_address();
    if (options.wire_up == UcxWireUp::listener) address = as_bytes(listener);
    return UcxParameters{.peer = {.token = connection_->token(),
                                  .window_bytes = options.window_bytes,
                                  .rendezvous_bytes_min = options.rendezvous_bytes_min},
                         .wire_up = options.wire_up,
                         .error_mode = options.error_mode,
                         .address = {address.begin(), address.end()}}
        .store();
  }
  void connect(Bytes client, Ready ready) override {
    const Result<UcxParameters> parameters = UcxParameters::load(client);
    ready(parameters ? connect_to(*parameters, false) : fail(parameters.error()));
  }
  Result<void> connect_to(const UcxParameters& parameters, bool to_server) {
    const UcxOptions& options = worker_->options();
    TRY(same(options, parameters.wire_up, parameters.error_mode));
    const bool by_listener = options.wire_up == UcxWireUp::listener;
    std::unique_ptr<UcxEndpoint> endpoint;
    // With a listener, the client connects, and the server gets its endpoint with the client's first message.
    if (!by_listener || to_server) {
      ucp_ep_params_t to{};
      UcxSocketAddress at;
      if (by_listener) {
        TRY(UcxSocketAddress&& parsed, UcxSocketAddress::parse(std::string(as_text(parameters.address))));
        at = std::move(parsed);
        to.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
        to.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
        to.sockaddr = {.addr = reinterpret_cast<const sockaddr*>(at.bytes.data()),
                       .addrlen = static_cast<socklen_t>(at.bytes.size())};
      } else {
        if (parameters.address.empty()) return malformed("half without an address");
        to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        to.address = reinterpret_cast<const ucp_address_t*>(parameters.address.data());
      }
      TRY(std::unique_ptr<UcxEndpoint> made, worker_->core().connect(to, connection_->token()));
      endpoint = std::move(made);
    }
    ucx::UcxPeer peer = parameters.peer;
    // The larger minimum applies, because either side may require that smaller payloads are sent within packets.
    peer.rendezvous_bytes_min = std::max(peer.rendezvous_bytes_min, options.rendezvous_bytes_min);
    connection_->set_peer(peer);
    if (endpoint != nullptr) connection_->set_endpoint(std::move(endpoint));
    return {};
  }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    connection_->open(std::move(stream));
    return std::move(connection_);
  }

 private:
  // Returns the address for the client: UcxOptions::listener_address, or else the address on which the peers met, with
  // the port of the listener. Empty on the client's side.
  std::string listener_address() const {
    const UcxListener* const listener = worker_->listener();
    if (listener == nullptr) return {};
    const std::string& bound = listener->address();
    return worker_->options().listener_address.empty() ? host_ + bound.substr(bound.rfind(':')) : bound;
  }
  // Each moves the callback first, because it may destroy this.
  void on_place(std::unique_ptr<UcxHalfOpen::Place> place) override {
    patience_.stop();
    const Ready ready = std::exchange(ready_, nullptr);
    Result<UcxTransportWorker::Selected> selected = waits_on_->select_with(std::move(place), limits_);
    if (!selected) return ready(fail(std::move(selected.error())));
    worker_ = std::move(selected->worker);
    connection_ = std::move(selected->connection);
    ready({});
  }
  void give_up() noexcept {
    leave();
    waits_on_->half_open().gave_up();
    const Ready ready = std::exchange(ready_, nullptr);
    ready(waits_on_->half_open().refusal());
  }

  std::shared_ptr<UcxWorker> worker_;
  std::unique_ptr<UcxConnection> connection_;
  const std::shared_ptr<UcxTransportWorker> waits_on_;  // Null if it does not wait.
  const MessageLimits limits_{};
  const std::string host_;  // The host of this machine for the client: "10.0.0.1" or "[fe80::1]".
  Ready ready_;
  MemberTimer<&UcxPendingConnection::give_up> patience_{*this};
};

namespace {

Result<std::shared_ptr<UcxWorker>> make_worker(const std::shared_ptr<UcxContext>& context, Loop& loop) {
  Result<std::shared_ptr<UcxWorker>> worker = UcxWorker::make(context, loop);
  const UcxOptions& options = context->options();
  if (!worker || options.wire_up != UcxWireUp::listener || options.listener_address.empty()) return worker;
  TRY((*worker)->listen(options.listener_address));
  return worker;
}

}  // namespace

Result<std::shared_ptr<UcxTransportWorker>> UcxTransportWorker::make(std::shared_ptr<UcxContext> context, Loop& loop) {
  TRY(std::shared_ptr<UcxWorker> worker, make_worker(context, loop));
  const std::size_t bytes = UcxParameters::bytes_least + worker->address().size();
  if (bytes > transport_parameters_bytes_max) {
    return fail(Error::of_transport(ErrorCode::limit_exceeded,
                                    "the address of a UCX worker has " + std::to_string(worker->address().size()) +
                                        " bytes of at most " +
                                        std::to_string(transport_parameters_bytes_max - UcxParameters::bytes_least) +
                                        ": name fewer transports or devices (UcxOptions::tls, net_devices)"));
  }
  return std::shared_ptr<UcxTransportWorker>(new UcxTransportWorker(std::move(context), loop, std::move(worker)));
}

std::size_t UcxTransportWorker::doubtful_bytes() const noexcept {
  std::size_t bytes = worker_->core().doubtful_bytes();
  for (const Retired& retired : retired_) bytes += retired.worker->core().doubtful_bytes();
  return bytes;
}

Result<std::shared_ptr<UcxWorker>> UcxTransportWorker::worker() {
  if (const std::size_t bytes = doubtful_bytes(); bytes > doubtful_total_bytes_max) {
    return fail(Error::of_transport(
        ErrorCode::overloaded,
        std::to_string(bytes) + " bytes (limit " + std::to_string(doubtful_total_bytes_max) +
            ") were to receive payloads of peers that have gone, and UCX may still write them: wait until the other "
            "connections over UCX close, or restart this process"));
  }
  const UcxCore& core = worker_->core();
  if (core.spent() + core.closing() > spent_max || core.doubtful_bytes() > doubtful_bytes_max) {
    context_->lingering().progress();
    if (const std::size_t old = retired_.size() + context_->lingering().size(); old >= old_workers_max) {
      return fail(Error::of_transport(
          ErrorCode::overloaded,
          std::to_string(old) + " UCX workers (limit " + std::to_string(old_workers_max) +
              ") have endpoints that UCX has not closed, such as those of killed peers, or memory that it may write: "
              "wait until their connections close, or restart this process"));
    }
    worker_->stop_listening();  // The new worker may need its port.
    TRY(std::shared_ptr<UcxWorker> made, make_worker(context_, loop_));
    retired_.push_back({std::exchange(worker_, std::move(made))});
    if (!rest_.running()) rest_.start(loop_, loop_.after(retired_rest));
  }
  return worker_;
}

void UcxTransportWorker::drop_retired() {
  std::erase_if(retired_, [](Retired& retired) {
    return std::exchange(retired.idle, retired.worker->targets() == 0) && retired.idle;
  });
  if (!retired_.empty()) rest_.start(loop_, loop_.after(retired_rest));
}

std::vector<std::byte> UcxTransportWorker::offer() {
  ByteWriter writer = sealable();
  writer.number(version)
      .number(static_cast<std::uint8_t>(context_->options().wire_up))
      .number(static_cast<std::uint8_t>(context_->options().error_mode));
  return seal(writer);
}

TransportWorker& UcxTransportWorker::select_device(std::string_view local) {
  const bool internet = UcxSocketAddress::parse(std::string(local)).has_value();
  host_ = internet ? local.substr(0, local.rfind(':')) : own_host;
  constexpr std::string_view mapped = "[::ffff:";
  if (host_.starts_with(mapped) && host_.contains('.'))
    host_ = host_.substr(mapped.size(), host_.size() - mapped.size() - 1);
  return *this;
}

Result<void> UcxTransportWorker::check_client(Bytes offer) {
  ByteReader reader(unseal(offer));
  const auto theirs = reader.number<std::uint16_t>();
  const auto wire_up = reader.number<std::uint8_t>();
  const auto error_mode = reader.number<std::uint8_t>();
  if (!reader.finished() || theirs != version || wire_up > 1 || error_mode > 1) return malformed("offer");
  return same(context_->options(), static_cast<UcxWireUp>(wire_up), static_cast<UcxErrorMode>(error_mode));
}

Result<UcxTransportWorker::Selected> UcxTransportWorker::select_with(std::unique_ptr<UcxHalfOpen::Place> place,
                                                                     const MessageLimits& limits) {
  TRY(const std::shared_ptr<UcxWorker>& on, worker());
  if (context_->options().wire_up == UcxWireUp::listener && on->listener() == nullptr) {
    // A loop that only connects needs no listener, so the first client makes it.
    if (host_.starts_with('[')) {
      return fail(Error::of_transport(ErrorCode::invalid_argument,
                                      "the client came over IPv6 (" + host_ +
                                          "), and UcxOptions::listener_address is not set on the server: set it"));
    }
    TRY(on->listen("0.0.0.0:0"));
  }
  TRY(std::unique_ptr<UcxConnection> connection, UcxConnection::make(on, limits));
  connection->set_half_open(std::move(place));
  return Selected{.worker = on, .connection = std::move(connection)};
}

Result<std::unique_ptr<PendingConnection>> UcxTransportWorker::select(Bytes offer, const MessageLimits& limits) {
  TRY(check_client(offer));
  std::unique_ptr<UcxHalfOpen::Place> place = half_open_->enter();
  if (place == nullptr) return std::make_unique<UcxPendingConnection>(shared_from_this(), limits, host_);
  TRY(Selected selected, select_with(std::move(place), limits));
  return std::make_unique<UcxPendingConnection>(std::move(selected.worker), std::move(selected.connection), host_);
}

Result<std::unique_ptr<PendingConnection>> UcxTransportWorker::accept(Bytes server, const MessageLimits& limits) {
  TRY(const UcxParameters& parameters, UcxParameters::load(server));
  TRY(const std::shared_ptr<UcxWorker>& on, worker());
  TRY(std::unique_ptr<UcxConnection> connection, UcxConnection::make(on, limits));
  auto pending = std::make_unique<UcxPendingConnection>(on, std::move(connection));
  TRY(pending->connect_to(parameters, true));
  return pending;
}

}  // namespace hawser::transport
