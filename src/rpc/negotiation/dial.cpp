#include "rpc/negotiation/dial.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "exec/signal.h"
#include "rpc/negotiation/handshake.h"
#include "transport/common/framed_connection.h"
#include "wire/frame.h"

namespace hawser::rpc {
namespace {

// The client's side of a handshake, to be awaited.
class ServerHello final : Handshake::Done {
 public:
  ServerHello(Loop& loop, std::unique_ptr<transport::Stream> stream, Time deadline, const wire::Hello& ours)
      : arrived_(loop), handshake_(loop, std::move(stream), deadline, *this) {
    handshake_.send(ours);
  }
  Task<Result<wire::Hello>> get() {
    while (!hello_) {
      auto arrived = arrived_.wait();
      co_await arrived;
    }
    co_return std::move(*std::exchange(hello_, std::nullopt));
  }
  void answer(const wire::Hello& ours) {
    handshake_.send(ours);
    handshake_.expect_next();
  }
  std::unique_ptr<transport::Stream> take_stream() noexcept { return handshake_.take_stream(); }

 private:
  void on_hello(Handshake&, Result<wire::Hello> hello) override {
    hello_.emplace(std::move(hello));
    arrived_.notify_all();
  }
  std::optional<Result<wire::Hello>> hello_;
  exec::Signal arrived_;
  Handshake handshake_;
};

void set_reason(std::vector<TransportNotTaken>& all, std::string_view transport, std::string reason) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.transport == transport; });
  if (at != all.end()) {
    at->reason = std::move(reason);
  } else {
    all.push_back({std::string(transport), std::move(reason)});
  }
}

std::vector<wire::NamedBytes> offers(const Paths& paths, const std::string& local,
                                     std::vector<TransportNotTaken>& not_taken) {
  std::vector<wire::NamedBytes> all;
  for (const Paths::Path& path : paths.all()) {
    const bool avoided = std::any_of(not_taken.begin(), not_taken.end(),
                                     [&](const TransportNotTaken& one) { return one.transport == path.name; });
    if (avoided) continue;
    if (path.end == nullptr) {
      not_taken.push_back({std::string(path.name), path.reason});
    } else {
      all.push_back({std::string(path.name), path.end->toward(local).offer()});
    }
  }
  return all;
}

// Until then, and no longer than `deadline`.
Task<Result<void>> until_ready(Loop& loop, transport::PathHalf& half, Time deadline) {
  struct State : Timer {
    explicit State(Loop& on) : Timer(&State::fire), changed(on) {}
    static void fire(Timer& timer) noexcept { static_cast<State&>(timer).changed.notify_all(); }
    std::optional<Result<void>> outcome;
    exec::Signal changed;
  };
  const auto state = std::make_shared<State>(loop);
  half.when_ready([weak = std::weak_ptr(state)](const Result<void>& outcome) {
    const auto there = weak.lock();
    if (there == nullptr) return;
    there->outcome.emplace(outcome);
    there->changed.notify_all();
  });
  state->start(loop, deadline);
  while (!state->outcome && loop.now() < deadline) {
    auto changed = state->changed.wait();
    co_await changed;
  }
  if (!state->outcome) {
    co_return fail(ErrorCode::overloaded,
                   "the client took more than 1.5 s to prepare it: the device's helper thread is behind",
                   ErrorScope::transport);
  }
  co_return *state->outcome;
}

}  // namespace

Task<Result<Dialed>> dial(Loop& loop, transport::Network& network, const std::string& address,
                          const ClientOptions& options, const Paths& paths, std::vector<TransportNotTaken> avoided,
                          Time deadline) {
  if (options.stream_window_bytes == 0) {
    co_return fail(
        ErrorCode::invalid_argument,
        "ClientOptions::stream_window_bytes (0) is less than 1 byte, without which no server may send a stream "
        "item: raise it",
        ErrorScope::connection);
  }
  auto dialing = network.connect(loop, address, deadline - loop.now());
  Result<std::unique_ptr<transport::Stream>> stream = co_await std::move(dialing);
  if (!stream) co_return std::unexpected(std::move(stream.error()));
  const std::string local = (*stream)->local();
  Dialed dialed;
  dialed.not_taken = std::move(avoided);
  const wire::Hello ours{
      .version_least = wire::version,
      .version_most = wire::version,
      .checksum = options.checksum,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .stream_window_bytes = options.stream_window_bytes,
      .offers = offers(paths, local, dialed.not_taken)};
  for (const wire::NamedBytes& offer : ours.offers) {
    dialed.not_taken.push_back({offer.name, "the server has enabled none, or prefers another transport"});
  }
  // Offered and not proposed yet. The ends are kept: `paths` may be without them by the time that the server answers.
  std::map<std::string, std::shared_ptr<transport::PathEnd>> left;
  for (const wire::NamedBytes& offer : ours.offers) left.emplace(offer.name, paths.find(offer.name)->end);
  ServerHello server(loop, std::move(*stream), deadline, ours);
  std::unique_ptr<transport::PathHalf> half;
  for (bool first = true;; first = false) {
    auto coming = server.get();
    Result<wire::Hello> hello = co_await std::move(coming);
    if (!hello) co_return std::unexpected(std::move(hello.error()));
    if (hello->refusal) co_return std::unexpected(std::move(*hello->refusal));
    if (first && (hello->version_most != wire::version || hello->calls_max == 0 ||
                  hello->message_bytes_max < transport::FramedConnection::prefix_bytes + wire::header_bytes)) {
      co_return fail(ErrorCode::protocol_error, "the server's hello makes no sense", ErrorScope::connection,
                     Initiator::peer);
    }
    for (const wire::NamedBytes& one : hello->declined) {
      if (paths.find(one.name) != nullptr) set_reason(dialed.not_taken, one.name, std::string(as_text(one.bytes)));
    }
    const std::optional<wire::NamedBytes> proposal = std::move(hello->proposal);
    const bool go = hello->go;
    if (go && half == nullptr) {
      co_return fail(ErrorCode::protocol_error, "the server goes ahead with a transport that was not agreed on",
                     ErrorScope::connection, Initiator::peer);
    }
    if (first) dialed.hello = std::move(*hello);
    if (go) {
      std::erase_if(dialed.not_taken, [&](const TransportNotTaken& one) { return one.transport == dialed.path; });
      dialed.connection = half->open(server.take_stream());
      co_return dialed;
    }
    half.reset();
    if (!proposal) {
      dialed.path.clear();
      dialed.connection = std::make_unique<transport::FramedConnection>(
          loop, server.take_stream(), transport::FramedOptions{.message_bytes_max = options.message_bytes_max});
      co_return dialed;
    }
    dialed.path = proposal->name;
    wire::Hello answer{.version_least = wire::version, .version_most = wire::version};
    const auto offered = left.extract(proposal->name);
    if (offered.empty()) {
      co_return fail(ErrorCode::protocol_error,
                     "the server proposes a transport that was not offered, or proposes it again",
                     ErrorScope::connection, Initiator::peer);
    }
    Result<std::unique_ptr<transport::PathHalf>> made = offered.mapped()->toward(local).begin_accept(
        proposal->bytes, path_limits(dialed.hello.message_bytes_max, options.message_bytes_max));
    if (made) {
      auto preparing = until_ready(loop, **made, std::min(deadline, loop.after(Proposals::step_max)));
      const Result<void> ready = co_await std::move(preparing);
      if (!ready) made = std::unexpected(ready.error());
    }
    if (made) {
      half = std::move(*made);
      dialed.end = offered.mapped();
      dialed.local = local;
      dialed.parameters = proposal->bytes;
      answer.answer = half->parameters();
    } else {
      answer.unanswered = made.error().text;
      set_reason(dialed.not_taken, proposal->name, made.error().text);
    }
    server.answer(answer);
  }
}

}  // namespace hawser::rpc
