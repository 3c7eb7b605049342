#pragma once

#include <cstdint>

#include "hawser/timer.h"

namespace hawser::protocol::grpc {

class Http2ServerSession;

// The end of a server's connection by GOAWAY, in two steps, so that no request is lost that is on its way. It begins
// when the server stops, or when the connection has reached connection_age_max. A part of its session. Loop's thread
// only.
class GoawaySteps {
 public:
  explicit GoawaySteps(Http2ServerSession& session) noexcept;

  // Begins to count the age of the connection.
  void start();
  // The first step: the client shall begin no more calls here.
  void announce();
  // The client has acknowledged the first step, or need not do so any more. The second step: new streams are refused.
  void complete();
  bool completed() const noexcept { return state_ == State::completed; }
  // The connection has ended.
  void stop() noexcept;

 private:
  void on_age();

  enum class State : std::uint8_t { none, announced, completed };

  Http2ServerSession& session_;
  State state_ = State::none;
  bool age_over_ = false;  // connection_age_max has passed: connection_age_grace runs.
  MemberTimer<&GoawaySteps::on_age> age_;
  MemberTimer<&GoawaySteps::complete> answer_;  // Runs while the client has not acknowledged the first step.
};

}  // namespace hawser::protocol::grpc
