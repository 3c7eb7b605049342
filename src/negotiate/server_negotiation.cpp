#include "negotiate/server_negotiation.h"

#include <utility>
#include <variant>

#include "base/log_line.h"
#include "base/try.h"
#include "negotiate/dial.h"
#include "transport/common/framed_connection.h"

namespace hawser::negotiate {

ServerNegotiation::ServerNegotiation(Loop& loop, AttachedTransports& transports, Handshake& handshake,
                                     transport::ServerSecurity* security, ServerSide side, Outcome& outcome)
    : loop_(loop),
      transports_(transports),
      handshake_(handshake),
      security_(security),
      outcome_(outcome),
      machine_(std::move(side)),
      local_(handshake.stream().local()) {}

void ServerNegotiation::begin(FirstHello first) {
  Action action = machine_.on_message(std::move(first));
  if (std::holds_alternative<MakeHalf>(action)) transports_.attach();
  perform(std::move(action));
}

void ServerNegotiation::on_answer(AnswerHello answer) {
  guard([&] {
    if (!answer.half) decline(answer.half.error());
    perform(machine_.on_message(std::move(answer)));
  });
}

void ServerNegotiation::on_sent() {
  if (step_ != Step::leaving) return;
  guard([this] { open_path(); });
}

// A step that a transport or the loop ends may run out of memory. `this` may be destroyed by it.
template <class Work>
void ServerNegotiation::guard(Work work) {
  const Watch<ServerNegotiation> watch = alive_.watch();
  try {
    work();
  } catch (const std::exception& thrown) {
    if (watch) outcome_.on_thrown(*this, thrown);
  }
}

void ServerNegotiation::perform(Action action) {
  if (const auto* const make = std::get_if<MakeHalf>(&action)) return make_half(*make);
  if (const auto* const connect = std::get_if<ConnectHalf>(&action)) return connect_half(*connect);
  if (const auto* const send = std::get_if<SendHello>(&action)) {
    handshake_.send(to_hello(send->message));
    return handshake_.expect_next();
  }
  if (const auto* const open = std::get_if<OpenPath>(&action)) {
    step_ = Step::leaving;
    handshake_.send(to_hello(*open->last));
    if (handshake_.sent()) open_path();
    return;
  }
  if (const auto* const open = std::get_if<OpenStream>(&action)) return open_stream(*open->last);
  outcome_.on_refused(*this, *std::get<EndNegotiation>(action).last);
}

void ServerNegotiation::make_half(const MakeHalf& half) {
  step_ = Step::making;
  const AttachedTransports::Entry& transport = *transports_.find(half.transport);
  if (transport.worker == nullptr) return on_step(fail(Error::of_transport(ErrorCode::unavailable, transport.reason)));
  Result<std::unique_ptr<transport::PendingConnection>> pending =
      transport.worker->select_device(local_).select(half.from, message_limits(machine_.agreed()));
  if (!pending) return on_step(fail(pending.error()));
  pending_ = std::move(*pending);
  timer_.start(loop_, loop_.after(AttachedTransports::step_max));
  // A pending connection that has been destroyed does not call back, so `this` is valid.
  pending_->when_ready([this](const Result<void>& ready) { guard([&] { on_step(ready); }); });
}

void ServerNegotiation::connect_half(const ConnectHalf& half) {
  step_ = Step::connecting;
  timer_.start(loop_, loop_.after(AttachedTransports::step_max));
  pending_->connect(half.to, [this](const Result<void>& connected) { guard([&] { on_step(connected); }); });
}

void ServerNegotiation::on_step(const Result<void>& outcome) {
  timer_.stop();
  if (std::exchange(step_, Step::none) == Step::making) {
    if (outcome) return perform(machine_.on_half(pending_->parameters()));
    pending_.reset();
    return perform(machine_.on_half(fail(outcome.error())));
  }
  const Result<void> connected = outcome ? secure_path() : outcome;
  if (!connected) decline(connected.error().text);
  perform(machine_.on_connected(connected));
}

Result<void> ServerNegotiation::secure_path() {
  if (security_ == nullptr) return {};
  TRY(path_, security_->secure_path(handshake_.stream(), machine_.path_terms()));
  return {};
}

// The client has the server's half, and the path fails.
void ServerNegotiation::decline(const std::string& why) {
  log_line(loop_.options().log, LogLevel::info, "rpc", [&] {
    return std::string(machine_.transport()) + " does not carry the connection of " + handshake_.stream().peer() +
           ": " + why;
  });
  pending_.reset();
}

// Posts give_up(), so that events which arrived while this loop was blocked are handled first: they may make the
// transport ready.
void ServerNegotiation::on_timer() noexcept {
  loop_.post([watch = alive_.watch()] {
    if (ServerNegotiation* const self = watch.get()) self->give_up();
  });
}

void ServerNegotiation::give_up() {
  if (timer_.running()) return;  // Another step has begun meanwhile.
  if (step_ != Step::making && step_ != Step::connecting) return;
  pending_.reset();
  guard([this] {
    on_step(fail(Error::of_transport(
        ErrorCode::overloaded, "the server took more than 1.5 s to prepare it: the device's helper thread is behind")));
  });
}

void ServerNegotiation::open_path() {
  std::shared_ptr<const Identity> identity = handshake_.stream().identity();
  auto connection = negotiate::open_path(*pending_, handshake_.release_stream(), std::move(path_.cipher));
  outcome_.on_agreed(*this, std::move(connection), std::move(identity));
}

// The last message and the messages behind it leave together.
void ServerNegotiation::open_stream(const HelloMessage& last) {
  std::shared_ptr<const Identity> identity = handshake_.stream().identity();
  auto connection = std::make_unique<transport::FramedConnection>(
      loop_, handshake_.release_stream(),
      transport::FramedOptions{.message_limit =
                                   wire::MessageLimit::without_prefix(machine_.agreed().receive_bytes_max)});
  connection->send_preface(wire::encode_hello(to_hello(last)));
  outcome_.on_agreed(*this, std::move(connection), std::move(identity));
}

}  // namespace hawser::negotiate
