#include "rpc/negotiation/attached_transports.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/what_of.h"
#include "hawser/loop.h"
#include "rpc/negotiation/path_guard.h"
#include "transport/common/sealed_connection.h"
#include "transport/path_proof.h"
#include "wire/message.h"

namespace hawser::rpc {

static_assert(transport::transport_offer_bytes_max == wire::transport_offer_bytes_max);
static_assert(transport::transport_parameters_bytes_max == wire::transport_parameters_bytes_max);

namespace {

bool protects_messages(std::uint8_t protection) noexcept {
  return protection > static_cast<std::uint8_t>(transport::PathProtection::authenticated);
}

}  // namespace

transport::MessageLimits message_limits(std::size_t theirs, std::size_t ours, std::uint8_t protection) noexcept {
  constexpr std::size_t prefix = wire::MessagePrefix::bytes;
  return {.send_bytes_max = std::min(theirs, ours) - prefix,
          .receive_bytes_max = ours - prefix,
          .protected_messages = protects_messages(protection)};
}

std::size_t path_overhead(std::uint8_t protection) noexcept {
  return protects_messages(protection) ? transport::SealedConnection::overhead_bytes : 0;
}

std::uint8_t higher_protection(transport::PathProtection server, std::uint8_t client) noexcept {
  const auto ours = static_cast<std::uint8_t>(server);
  return transport::known(client) ? std::max(ours, client) : ours;
}

std::string_view refusal_of_path(std::uint8_t client, std::size_t message_bytes_max) noexcept {
  if (client == 0) return "the client does not prove that it agreed on the path: update it";
  if (!transport::known(client)) {
    return "the client demands a protection of paths that this server does not know: update the server";
  }
  constexpr std::size_t bytes_min =
      wire::MessagePrefix::bytes + PathGuard::message_bytes + transport::SealedConnection::overhead_bytes;
  static_assert(bytes_min == 112);
  if (message_bytes_max < bytes_min) {
    return "message_bytes_max of one side is less than 112 bytes, which a protected path needs: raise it";
  }
  return {};
}

void AttachedTransports::attach() {
  const bool first = attached_.empty();
  // Searching for devices takes longer than a handshake.
  if (!first && loop_.now() - tried_ < retry_min_) return;
  if (first) {
    std::vector<Entry> entries;
    for (const auto& transport : transports_) entries.push_back({.name = transport->name()});
    attached_ = std::move(entries);  // All entries exist from now on, even if an exception ends this function.
  }
  tried_ = loop_.now();
  for (std::size_t i = 0; i < transports_.size(); ++i) {
    Entry& transport = attached_[i];
    if (transport.worker != nullptr && transport.worker->usable()) continue;
    // The worker is released first, so that a device that was removed can be closed. Connections keep what they need.
    transport.worker.reset();
    Result<std::shared_ptr<transport::TransportWorker>> worker = attach_one(*transports_[i]);
    if (worker) {
      transport.worker = std::move(*worker);
      continue;
    }
    transport.reason = std::move(worker.error().text);
    if (first) loop_.log(LogLevel::warning, "rpc", std::string(transport.name) + " can't be used: " + transport.reason);
  }
}

// An exception of one transport must not prevent the use of the others.
Result<std::shared_ptr<transport::TransportWorker>> AttachedTransports::attach_one(transport::Transport& transport) {
  try {
    return transport.attach(loop_);
  } catch (const std::exception& error) {
    return fail(Error::of_transport(ErrorCode::unavailable, "an exception: " + std::string(what_of(error))));
  }
}

const AttachedTransports::Entry* AttachedTransports::find(std::string_view name) const noexcept {
  const auto at =
      std::find_if(attached_.begin(), attached_.end(), [&](const Entry& transport) { return transport.name == name; });
  return at == attached_.end() ? nullptr : &*at;
}

Bytes TransportSelector::offer() const noexcept {
  const auto at = std::ranges::find(offers_, transport_, &wire::NamedBytes::name);
  return at == offers_.end() ? Bytes() : Bytes(at->bytes);
}

void TransportSelector::select(wire::Hello& hello, Done done) {
  hello_ = &hello;
  done_ = std::move(done);
  next();
}

void TransportSelector::next() {
  pending_.reset();
  while (next_ < transports_.all().size()) {
    const AttachedTransports::Entry& transport = transports_.all()[next_++];
    transport_ = transport.name;
    const auto offer = std::find_if(offers_.begin(), offers_.end(),
                                    [&](const wire::NamedBytes& one) { return one.name == transport_; });
    if (offer == offers_.end()) {
      note("the client did not offer it");
      continue;
    }
    if (transport.worker == nullptr) {
      failed(transport.reason);
      continue;
    }
    Result<std::unique_ptr<transport::PendingConnection>> pending =
        transport.worker->select_device(local_).begin_select(offer->bytes, limits_);
    if (!pending) {
      failed(std::move(pending.error().text));
      continue;
    }
    pending_ = std::move(*pending);
    timer_.start(loop_, loop_.after(step_max));
    // A pending connection that has been destroyed does not call back, so `this` is valid.
    return pending_->when_ready([this](const Result<void>& ready) {
      if (ready) return selected();
      failed(ready.error().text);
      next();
    });
  }
  selected();
}

void TransportSelector::connect(Bytes answer, transport::PendingConnection::Ready ready) {
  ready_ = std::move(ready);
  timer_.start(loop_, loop_.after(step_max));
  pending_->begin_connect(answer, [this](const Result<void>& outcome) { connected(outcome); });
}

void TransportSelector::connected(const Result<void>& outcome) {
  timer_.stop();
  const transport::PendingConnection::Ready ready = std::exchange(ready_, nullptr);
  ready(outcome);  // May destroy this.
}

// Posts give_up(), so that events which arrived while this loop was blocked are handled first: they may make the
// transport ready.
void TransportSelector::on_timer() noexcept {
  loop_.post([watch = alive_.watch()] {
    if (TransportSelector* const self = watch.get()) self->give_up();
  });
}

void TransportSelector::give_up() {
  constexpr const char* why = "the server took more than 1.5 s to prepare it: the device's helper thread is behind";
  if (done_) {
    failed(why);
    return next();
  }
  if (!ready_) return;
  pending_.reset();
  connected(fail(Error::of_transport(ErrorCode::overloaded, why)));
}

void TransportSelector::selected() {
  timer_.stop();
  wire::Hello& hello = *hello_;
  if (pending_ != nullptr) {
    hello.selection = {std::string(transport_), pending_->parameters()};
  } else {
    // Declines the offered transports that this server does not have.
    for (const wire::NamedBytes& offer : offers_) {
      if (transports_.find(offer.name) != nullptr) continue;
      transport_ = offer.name;
      failed("the server has not enabled it");
    }
    transport_ = {};
  }
  hello.declined = std::exchange(declined_, {});
  const Done done = std::exchange(done_, nullptr);
  done(pending_ != nullptr);
}

void TransportSelector::note(std::string_view reason) {
  if (reasons_.size() >= reasons_max) return;
  reasons_.push_back((std::string(transport_) + ": " + std::string(reason)).substr(0, reason_bytes_max));
}

void TransportSelector::failed(std::string reason) {
  pending_.reset();
  ++failures_;
  note(reason);
  const Bytes bytes = as_bytes(reason);
  declined_.push_back({std::string(transport_), {bytes.begin(), bytes.end()}});
}

}  // namespace hawser::rpc
