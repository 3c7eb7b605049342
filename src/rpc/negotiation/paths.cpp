#include "rpc/negotiation/paths.h"

#include <algorithm>
#include <utility>

#include "hawser/loop.h"
#include "transport/common/framed_connection.h"

namespace hawser::rpc {

static_assert(transport::path_offer_bytes_max == wire::path_offer_bytes_max);
static_assert(transport::path_parameters_bytes_max == wire::path_parameters_bytes_max);

transport::PathLimits path_limits(std::size_t theirs, std::size_t ours) noexcept {
  constexpr std::size_t prefix = transport::FramedConnection::prefix_bytes;
  return {.send_bytes_max = std::min(theirs, ours) - prefix, .receive_bytes_max = ours - prefix};
}

void Paths::attach() {
  const bool first = attached_.empty();
  // Looking for devices takes longer than a handshake.
  if (!first && loop_.now() - tried_ < retry_min_) return;
  tried_ = loop_.now();
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (first) attached_.push_back({.name = paths_[i]->name()});
    Path& path = attached_[i];
    if (path.end != nullptr && path.end->usable()) continue;
    // Let go of first, so that a device that has gone can be taken away. Connections keep what they need.
    path.end.reset();
    Result<std::shared_ptr<transport::PathEnd>> end = paths_[i]->attach(loop_);
    if (end) {
      path.end = std::move(*end);
      continue;
    }
    path.reason = std::move(end.error().text);
    if (first) loop_.log(LogLevel::warning, "rpc", std::string(path.name) + " can't be used: " + path.reason);
  }
}

const Paths::Path* Paths::find(std::string_view name) const noexcept {
  const auto at = std::find_if(attached_.begin(), attached_.end(), [&](const Path& path) { return path.name == name; });
  return at == attached_.end() ? nullptr : &*at;
}

void Proposals::propose(wire::Hello& hello, Done done) {
  hello_ = &hello;
  done_ = std::move(done);
  next();
}

void Proposals::next() {
  half_.reset();
  while (next_ < paths_.all().size()) {
    const Paths::Path& path = paths_.all()[next_++];
    path_ = path.name;
    const auto offer =
        std::find_if(offers_.begin(), offers_.end(), [&](const wire::NamedBytes& one) { return one.name == path_; });
    if (offer == offers_.end()) continue;
    if (path.end == nullptr) {
      failed(path.reason);
      continue;
    }
    Result<std::unique_ptr<transport::PathHalf>> half = path.end->toward(local_).begin_propose(offer->bytes, limits_);
    if (!half) {
      failed(std::move(half.error().text));
      continue;
    }
    half_ = std::move(*half);
    Timer::start(loop_, loop_.after(step_max));
    // A half that is destroyed does not call, so this is there.
    return half_->when_ready([this](const Result<void>& ready) {
      if (ready) return proposed();
      failed(ready.error().text);
      next();
    });
  }
  proposed();
}

void Proposals::connect(Bytes answer, transport::PathHalf::Ready ready) {
  ready_ = std::move(ready);
  Timer::start(loop_, loop_.after(step_max));
  half_->begin_connect(answer, [this](const Result<void>& outcome) { connected(outcome); });
}

void Proposals::connected(const Result<void>& outcome) {
  Timer::stop();
  const transport::PathHalf::Ready ready = std::exchange(ready_, nullptr);
  ready(outcome);  // May destroy this.
}

// What is ready by now, and came while this loop did not run, is looked at first.
void Proposals::on_timer(Timer& timer) noexcept {
  Proposals& self = static_cast<Proposals&>(timer);
  self.loop_.post([&self, alive = std::weak_ptr<char>(self.alive_)] {
    if (!alive.expired()) self.give_up();
  });
}

void Proposals::give_up() {
  constexpr const char* why = "the server took more than 1.5 s to prepare it: the device's helper thread is behind";
  if (done_) {
    failed(why);
    return next();
  }
  if (!ready_) return;
  half_.reset();
  connected(fail(ErrorCode::overloaded, why, ErrorScope::transport));
}

void Proposals::proposed() {
  Timer::stop();
  wire::Hello& hello = *hello_;
  if (half_ != nullptr) {
    hello.proposal = {std::string(path_), half_->parameters()};
  } else {
    // Those that this server does not have at all.
    for (const wire::NamedBytes& offer : offers_) {
      if (paths_.find(offer.name) != nullptr) continue;
      path_ = offer.name;
      failed("the server has not enabled it");
    }
    path_ = {};
  }
  hello.declined = std::exchange(declined_, {});
  const Done done = std::exchange(done_, nullptr);
  done(half_ != nullptr);
}

void Proposals::failed(std::string reason) {
  half_.reset();
  ++failures_;
  const Bytes bytes = as_bytes(reason);
  declined_.push_back({std::string(path_), {bytes.begin(), bytes.end()}});
}

}  // namespace hawser::rpc
