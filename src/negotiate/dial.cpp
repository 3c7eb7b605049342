#include "negotiate/dial.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/try.h"
#include "exec/condition.h"
#include "negotiate/client_machine.h"
#include "negotiate/handshake.h"
#include "transport/common/framed_connection.h"
#include "transport/common/pending_step.h"
#include "transport/common/sealed_connection.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace hawser::negotiate {
namespace {

// An awaitable that exchanges messages with the server.
class ServerHello final : Handshake::Done {
 public:
  ServerHello(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline)
      : arrived_(loop), handshake_(loop, std::move(stream), deadline, *this) {}
  // Sends a message and waits for the server's next one.
  Task<Result<HelloMessage>> exchange(HelloMessage message) {
    handshake_.send(to_hello(message));
    if (std::exchange(asked_, true)) handshake_.expect_next();
    while (!hello_) {
      co_await arrived_.wait();
    }
    CO_TRY(wire::Hello hello, std::move(*hello_));
    hello_.reset();
    co_return server_message_of(std::move(hello));
  }
  transport::Stream& stream() noexcept { return handshake_.stream(); }
  std::unique_ptr<transport::Stream> release_stream() noexcept { return handshake_.release_stream(); }

 private:
  void on_hello(Handshake&, Result<wire::Hello> hello) override {
    hello_.emplace(std::move(hello));
    arrived_.notify_all();
  }
  std::optional<Result<wire::Hello>> hello_;
  exec::Condition arrived_;
  bool asked_ = false;
  Handshake handshake_;
};

void set_reason(std::vector<TransportFallback>& all, std::string_view transport, std::string reason) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.transport == transport; });
  if (at != all.end()) {
    at->reason = std::move(reason);
  } else {
    all.push_back({std::string(transport), std::move(reason)});
  }
}

// Errors of options that would make every connection useless.
Result<void> check_options(const ClientOptions& options) {
  const auto invalid = [](std::string text) {
    return fail(Error::of_connection(ErrorCode::invalid_argument, "ClientOptions::" + std::move(text)));
  };
  if (options.stream_window_bytes == 0) {
    return invalid(
        "stream_window_bytes (0) is less than 1 byte, without which no server may send a stream item: raise it");
  }
  if (options.message_bytes_max < wire::message_bytes_least) {
    return invalid("message_bytes_max (" + std::to_string(options.message_bytes_max) + ") is less than " +
                   std::to_string(wire::message_bytes_least) + " bytes, which a frame without a body takes: raise it");
  }
  if (options.calls_in_flight_max == 0) {
    return invalid("calls_in_flight_max (0) is less than 1, without which no call can be made: raise it");
  }
  if (options.ping_interval <= Duration::zero()) {
    return invalid("ping_interval (" + std::to_string(options.ping_interval.count()) +
                   " ns) is not positive: raise it, or use `forever` to send no PING");
  }
  return {};
}

// `avoided` are transports that are not offered, with the reasons.
ClientSide client_side(const ClientOptions& options, const transport::Stream& stream,
                       const AttachedTransports& transports, std::vector<TransportFallback> avoided) {
  const transport::ClientSecurity* const security = options.security.get();
  const std::string local = stream.local();
  const std::string_view stream_only = security != nullptr ? security->stream_only(stream) : std::string_view();
  ClientSide side{.terms = {.checksum = options.checksum,
                            .memory = true,
                            .message_bytes_max = options.message_bytes_max,
                            .calls_max = options.calls_in_flight_max,
                            .stream_window_bytes = options.stream_window_bytes,
                            .protection = security != nullptr ? static_cast<std::uint8_t>(security->path_protection())
                                                              : std::uint8_t{0}},
                  .not_offered = std::move(avoided)};
  for (const AttachedTransports::Entry& transport : transports.all()) {
    if (!stream_only.empty()) {
      set_reason(side.not_offered, transport.name, std::string(stream_only));
    } else if (std::ranges::find(side.not_offered, transport.name, &TransportFallback::transport) !=
               side.not_offered.end()) {
      continue;
    } else if (transport.worker == nullptr) {
      side.not_offered.push_back({std::string(transport.name), transport.reason});
    } else {
      side.offers.push_back({std::string(transport.name), transport.worker->select_device(local).offer()});
    }
  }
  return side;
}

// The client's half of the path that is being tried.
class ClientHalf {
 public:
  ClientHalf(Loop& loop, const AttachedTransports& transports, const std::vector<wire::NamedBytes>& offers,
             std::string local, Time deadline)
      : loop_(loop), local_(std::move(local)), deadline_(deadline) {
    for (const wire::NamedBytes& offer : offers) workers_.emplace(offer.name, transports.find(offer.name)->worker);
  }

  // Makes the half, connected to the server's, and returns its parameters. The one before is destroyed.
  Task<Result<std::vector<std::byte>>> make(MakeHalf half, transport::MessageLimits limits) {
    pending_.reset();
    worker_ = workers_.at(half.transport);
    CO_TRY(std::unique_ptr<transport::PendingConnection> pending,
           worker_->select_device(local_).accept(half.from, limits));
    const auto outcome = co_await transport::run_step(
        loop_, std::min(deadline_, loop_.after(AttachedTransports::step_max)),
        [&](transport::PendingConnection::Ready ready) { pending->when_ready(std::move(ready)); });
    if (!outcome) {
      co_return fail(Error::of_transport(ErrorCode::overloaded,
                                         "the client took more than 1.5 s to prepare it: the "
                                         "device's helper thread is behind"));
    }
    CO_TRY(*outcome);
    pending_ = std::move(pending);
    co_return pending_->parameters();
  }
  void reset() noexcept { pending_.reset(); }
  transport::PendingConnection& pending() noexcept { return *pending_; }
  const std::shared_ptr<transport::TransportWorker>& worker() const noexcept { return worker_; }
  const std::string& local() const noexcept { return local_; }

 private:
  Loop& loop_;
  // The workers of the offered transports. AttachedTransports may have released them when the server answers.
  std::map<std::string, std::shared_ptr<transport::TransportWorker>> workers_;
  const std::string local_;
  const Time deadline_;
  std::shared_ptr<transport::TransportWorker> worker_;
  std::unique_ptr<transport::PendingConnection> pending_;
};

// Opens the path on which both sides agreed.
Result<void> open_dialed_path(Dialed& dialed, ServerHello& server, ClientHalf& half, const ClientMachine& machine,
                              transport::ClientSecurity* security) {
  transport::PathSecurity secured;
  if (security != nullptr) {
    TRY(secured, security->secure_path(server.stream(), machine.path_terms()));
  }
  dialed.transport = machine.transport();
  dialed.worker = half.worker();
  dialed.local = half.local();
  dialed.parameters = machine.server_half();
  dialed.proof = std::move(secured.proof);
  dialed.connection = open_path(half.pending(), server.release_stream(), std::move(secured.cipher));
  return {};
}

}  // namespace

std::unique_ptr<transport::Connection> open_path(transport::PendingConnection& pending,
                                                 std::unique_ptr<transport::Stream> stream,
                                                 std::unique_ptr<transport::PathCipher> cipher) {
  std::unique_ptr<transport::Connection> connection = pending.open(std::move(stream));
  if (cipher == nullptr) return connection;
  return std::make_unique<transport::SealedConnection>(std::move(connection), std::move(cipher));
}

Task<Result<std::unique_ptr<transport::Stream>>> connect_stream(Loop& loop, transport::Network& network,
                                                                std::string address,
                                                                std::shared_ptr<transport::ClientSecurity> security,
                                                                std::string_view protocol, Time deadline) {
  Result<std::unique_ptr<transport::Stream>> stream = co_await network.connect(loop, address, deadline - loop.now());
  if (!stream || security == nullptr) co_return stream;
  co_return co_await security->protect(loop, std::move(*stream), std::move(address), protocol, deadline);
}

Task<Result<Dialed>> dial(Loop& loop, transport::Network& network, const std::string& address,
                          const ClientOptions& options, const AttachedTransports& transports,
                          std::vector<TransportFallback> avoided, Time deadline) {
  CO_TRY(check_options(options));
  CO_TRY(std::unique_ptr<transport::Stream> stream,
         co_await connect_stream(loop, network, address, options.security, native_alpn, deadline));
  const std::string local = stream->local();
  ClientMachine machine(client_side(options, *stream, transports, std::move(avoided)));
  ServerHello server(loop, std::move(stream), deadline);
  ClientHalf half(loop, transports, machine.offers(), local, deadline);
  for (Action action = machine.start();;) {
    if (SendHello* const send = std::get_if<SendHello>(&action)) {
      CO_TRY(HelloMessage&& message, co_await server.exchange(std::move(send->message)));
      action = machine.on_message(std::move(message));
    } else if (MakeHalf* const make = std::get_if<MakeHalf>(&action)) {
      action = machine.on_half(co_await half.make(std::move(*make), message_limits(machine.agreed())));
    } else if (EndNegotiation* const end = std::get_if<EndNegotiation>(&action)) {
      co_return fail(std::move(end->why));
    } else {
      Dialed dialed;
      dialed.agreed = machine.agreed();
      dialed.fallback_reasons = machine.fallback_reasons();
      if (std::holds_alternative<OpenPath>(action)) {
        CO_TRY(open_dialed_path(dialed, server, half, machine, options.security.get()));
      } else {
        half.reset();
        dialed.connection = std::make_unique<transport::FramedConnection>(
            loop, server.release_stream(),
            transport::FramedOptions{.message_limit = wire::MessageLimit(options.message_bytes_max)});
      }
      co_return dialed;
    }
  }
}

}  // namespace hawser::negotiate
