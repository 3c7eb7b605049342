#include "protocol/grpc/goaway_steps.h"

#include <chrono>
#include <utility>

#include "protocol/grpc/server_session.h"
#include "protocol/http2/error_codes.h"
#include "rpc/port/spread_age.h"

namespace hawser::protocol::grpc {
namespace {

// A client that does not acknowledge the first step of GOAWAY for so long may open no further streams either.
constexpr Duration goaway_answer_max = std::chrono::seconds(5);

}  // namespace

GoawaySteps::GoawaySteps(Http2ServerSession& session) noexcept : session_(session), age_(*this), answer_(*this) {}

void GoawaySteps::start() {
  const Duration age_max = session_.options_.connection_age_max;
  if (age_max >= forever) return;
  Loop& loop = session_.host().loop;
  const auto began = static_cast<std::uint64_t>(loop.poller().now().time_since_epoch().count());
  age_.start(loop, loop.after(rpc::spread_age(age_max, began)));
}

void GoawaySteps::announce() {
  if (session_.closed() || session_.finishing() || state_ != State::none) return;
  state_ = State::announced;
  session_.machine_.announce_goaway();
  Loop& loop = session_.host().loop;
  answer_.start(loop, loop.after(goaway_answer_max));
  session_.send_soon();
}

void GoawaySteps::complete() {
  if (session_.closed() || session_.finishing() || state_ != State::announced) return;
  state_ = State::completed;
  answer_.stop();
  session_.machine_.send_goaway(http2::no_error, age_over_ ? "max_age" : "");
  session_.begin_ending();
  session_.send_soon();
}

void GoawaySteps::on_age() {
  if (session_.closed() || session_.finishing()) return;
  if (std::exchange(age_over_, true)) {
    return session_.end_session(Error::of_connection(
        ErrorCode::unavailable, "the connection is older than connection_age_max, and connection_age_grace is over"));
  }
  announce();
  const Duration grace = session_.options_.connection_age_grace;
  Loop& loop = session_.host().loop;
  if (grace < forever) age_.start(loop, loop.after(grace));
}

void GoawaySteps::stop() noexcept {
  age_.stop();
  answer_.stop();
}

}  // namespace hawser::protocol::grpc
