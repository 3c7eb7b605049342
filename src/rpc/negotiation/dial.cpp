#include "rpc/negotiation/dial.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/try.h"
#include "exec/condition.h"
#include "rpc/negotiation/handshake.h"
#include "transport/common/framed_connection.h"
#include "transport/common/sealed_connection.h"
#include "wire/frame.h"
#include "wire/message.h"

namespace hawser::rpc {
namespace {

// An awaitable that performs the client's side of a handshake.
class ServerHello final : Handshake::Done {
 public:
  ServerHello(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, const wire::Hello& ours)
      : arrived_(loop), handshake_(loop, std::move(stream), deadline, *this) {
    handshake_.send(ours);
  }
  Task<Result<wire::Hello>> get() {
    while (!hello_) {
      co_await arrived_.wait();
    }
    co_return std::move(*std::exchange(hello_, std::nullopt));
  }
  void answer(const wire::Hello& ours) {
    handshake_.send(ours);
    handshake_.expect_next();
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

// `stream_only` is the reason why no transport is offered; empty: there is none.
std::vector<wire::NamedBytes> offers(const AttachedTransports& transports, const std::string& local,
                                     std::string_view stream_only, std::vector<TransportFallback>& fallback_reasons) {
  std::vector<wire::NamedBytes> all;
  for (const AttachedTransports::Entry& transport : transports.all()) {
    if (!stream_only.empty()) {
      set_reason(fallback_reasons, transport.name, std::string(stream_only));
      continue;
    }
    const bool avoided = std::any_of(fallback_reasons.begin(), fallback_reasons.end(),
                                     [&](const TransportFallback& one) { return one.transport == transport.name; });
    if (avoided) continue;
    if (transport.worker == nullptr) {
      fallback_reasons.push_back({std::string(transport.name), transport.reason});
    } else {
      all.push_back({std::string(transport.name), transport.worker->select_device(local).offer()});
    }
  }
  return all;
}

// Waits until the pending connection is ready or has failed, and no longer than `deadline`.
Task<Result<void>> until_ready(Loop& loop, transport::PendingConnection& pending, Time deadline) {
  struct State {
    explicit State(Loop& on) : changed(on) {}
    std::optional<Result<void>> outcome;
    exec::Condition changed;
    MemberTimer<&exec::Condition::notify_all> timer{changed};
  };
  const auto state = std::make_shared<State>(loop);
  pending.when_ready([weak = std::weak_ptr(state)](const Result<void>& outcome) {
    const auto there = weak.lock();
    if (there == nullptr) return;
    there->outcome.emplace(outcome);
    there->changed.notify_all();
  });
  state->timer.start(loop, deadline);
  while (!state->outcome && loop.now() < deadline) {
    co_await state->changed.wait();
  }
  if (!state->outcome) {
    co_return fail(Error::of_transport(
        ErrorCode::overloaded, "the client took more than 1.5 s to prepare it: the device's helper thread is behind"));
  }
  co_return *state->outcome;
}

// Empty if a path with the protection that the server has answered may be used, and with messages of
// `message_bytes_max`; otherwise the reason.
std::string refusal_of_protection(std::uint8_t demanded, std::uint8_t answered, std::size_t message_bytes_max) {
  if (answered == 0) return "the server does not prove that it agreed on the path: update it";
  if (!transport::known(answered)) return "the server demands a protection of paths that is not known here: update it";
  if (answered < demanded) {
    return "the server offers " + std::string(to_string(static_cast<transport::PathProtection>(answered))) +
           " messages on the path, and TlsClientOptions::protection demands " +
           std::string(to_string(static_cast<transport::PathProtection>(demanded))) + " ones: update the server";
  }
  return std::string(refusal_of_path(answered, message_bytes_max));
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
  if (options.stream_window_bytes == 0) {
    co_return fail(Error::of_connection(
        ErrorCode::invalid_argument,
        "ClientOptions::stream_window_bytes (0) is less than 1 byte, without which no server may send a stream "
        "item: raise it"));
  }
  if (options.message_bytes_max < wire::message_bytes_least) {
    co_return fail(Error::of_connection(
        ErrorCode::invalid_argument, "ClientOptions::message_bytes_max (" + std::to_string(options.message_bytes_max) +
                                         ") is less than " + std::to_string(wire::message_bytes_least) +
                                         " bytes, which a frame without a body takes: raise it"));
  }
  if (options.calls_in_flight_max == 0) {
    co_return fail(Error::of_connection(
        ErrorCode::invalid_argument,
        "ClientOptions::calls_in_flight_max (0) is less than 1, without which no call can be made: raise it"));
  }
  if (options.ping_interval <= Duration::zero()) {
    co_return fail(Error::of_connection(
        ErrorCode::invalid_argument, "ClientOptions::ping_interval (" + std::to_string(options.ping_interval.count()) +
                                         " ns) is not positive: raise it, or use `forever` to send no PING"));
  }
  CO_TRY(std::unique_ptr<transport::Stream> stream,
         co_await connect_stream(loop, network, address, options.security, native_alpn, deadline));
  const std::string local = stream->local();
  transport::ClientSecurity* const security = options.security.get();
  Dialed dialed;
  dialed.fallback_reasons = std::move(avoided);
  const std::uint8_t demanded =
      security != nullptr ? static_cast<std::uint8_t>(security->path_protection()) : std::uint8_t{0};
  const wire::Hello ours{
      .version_min = wire::version,
      .version_max = wire::version,
      .checksum = options.checksum,
      .memory = true,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .stream_window_bytes = options.stream_window_bytes,
      .offers = offers(transports, local, security != nullptr ? security->stream_only(*stream) : std::string_view(),
                       dialed.fallback_reasons),
      .protection = demanded};
  for (const wire::NamedBytes& offer : ours.offers) {
    dialed.fallback_reasons.push_back({offer.name, "the server has enabled none, or prefers another transport"});
  }
  // The transports that were offered and not selected yet. The map keeps their workers: `transports` may have released
  // them when the server answers.
  std::map<std::string, std::shared_ptr<transport::TransportWorker>> left;
  for (const wire::NamedBytes& offer : ours.offers) left.emplace(offer.name, transports.find(offer.name)->worker);
  ServerHello server(loop, std::move(stream), deadline, ours);
  std::unique_ptr<transport::PendingConnection> pending;
  for (bool first = true;; first = false) {
    CO_TRY(wire::Hello&& hello, co_await server.get());
    if (hello.refusal) co_return fail(std::move(*hello.refusal));
    if (first) {
      CO_TRY(wire::check_server_hello(hello));
    }
    for (const wire::NamedBytes& one : hello.declined) {
      if (transports.find(one.name) != nullptr)
        set_reason(dialed.fallback_reasons, one.name, std::string(as_text(one.bytes)));
    }
    const std::optional<wire::NamedBytes> selection = std::move(hello.selection);
    const bool both_ready = hello.ready;
    if (both_ready && pending == nullptr) {
      co_return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                          "invalid server HELLO: ready for a transport that was not agreed on"));
    }
    if (first) dialed.hello = std::move(hello);
    if (both_ready) {
      std::erase_if(dialed.fallback_reasons,
                    [&](const TransportFallback& one) { return one.transport == dialed.transport; });
      std::unique_ptr<transport::PathCipher> cipher;
      if (security != nullptr) {
        const auto offered = std::ranges::find(ours.offers, dialed.transport, &wire::NamedBytes::name);
        CO_TRY(transport::PathSecurity&& secured,
               security->secure_path(server.stream(),
                                     {.transport = dialed.transport,
                                      .offer = offered->bytes,
                                      .selection = dialed.parameters,
                                      .answer = pending->parameters(),
                                      .protection = static_cast<transport::PathProtection>(dialed.hello.protection)}));
        dialed.proof = std::move(secured.proof);
        cipher = std::move(secured.cipher);
        dialed.overhead_bytes = path_overhead(dialed.hello.protection);
      }
      dialed.connection = open_path(*pending, server.release_stream(), std::move(cipher));
      co_return dialed;
    }
    pending.reset();
    if (!selection) {
      dialed.transport.clear();
      dialed.connection = std::make_unique<transport::FramedConnection>(
          loop, server.release_stream(),
          transport::FramedOptions{.message_limit = wire::MessageLimit(options.message_bytes_max)});
      co_return dialed;
    }
    dialed.transport = selection->name;
    wire::Hello answer{.version_min = wire::version, .version_max = wire::version};
    const auto offered = left.extract(selection->name);
    if (offered.empty()) {
      co_return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                          "invalid server HELLO: it proposes the transport '" + selection->name +
                                              "', which was not offered, or proposes it again"));
    }
    std::string refused;
    if (security != nullptr) {
      refused = refusal_of_protection(demanded, dialed.hello.protection,
                                      std::min<std::size_t>(dialed.hello.message_bytes_max, options.message_bytes_max));
    }
    Result<std::unique_ptr<transport::PendingConnection>> made =
        !refused.empty()
            ? fail(Error::of_transport(ErrorCode::unavailable, std::move(refused)))
            : offered.mapped()->select_device(local).begin_accept(
                  selection->bytes, message_limits(dialed.hello.message_bytes_max, options.message_bytes_max,
                                                   security != nullptr ? dialed.hello.protection : std::uint8_t{0}));
    if (made) {
      const Result<void> ready =
          co_await until_ready(loop, **made, std::min(deadline, loop.after(TransportSelector::step_max)));
      if (!ready) made = fail(ready.error());
    }
    if (made) {
      pending = std::move(*made);
      dialed.worker = offered.mapped();
      dialed.local = local;
      dialed.parameters = selection->bytes;
      answer.answer = pending->parameters();
    } else {
      answer.unanswered = made.error().text;
      set_reason(dialed.fallback_reasons, selection->name, made.error().text);
    }
    server.answer(answer);
  }
}

}  // namespace hawser::rpc
