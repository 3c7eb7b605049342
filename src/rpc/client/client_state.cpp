#include "rpc/client/client_state.h"

#include <utility>

#include "base/try.h"

namespace hawser::rpc {

ClientState::ClientState(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with,
                         std::string_view protocol)
    : options(std::move(with)), network(std::move(over)), loop(on), link(address, protocol) {
  link.reason = not_connected();
  for (const auto& interceptor : options.interceptors) add_interceptor(interceptor);
}

Error ClientState::not_connected() {
  return Error::of_connection(ErrorCode::not_sent, "not connected: co_await connect(address) first");
}

void ClientState::end() {
  if (uses_loop_) detail::LoopAccess::check_thread(*loop);
  scope.clear();
  close("the client was destroyed");
  if (interception) interception->end("the client was destroyed");
  if (uses_loop_) detail::LoopAccess::remove_user(*loop, *this);
}

void ClientState::add_interceptor(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor) {
  if (!interception) {
    interception = std::make_shared<ClientInterception>(options.call_timeout, options.calls_in_flight_max);
    interception->attach(link);
    if (at_place_) at_place(std::move(at_place_));
  }
  interception->add(std::move(interceptor));
}

void ClientState::at_place(std::function<void()> call) {
  at_place_ = std::move(call);
  if (interception) interception->at_end([this] { place_freed(); });
}

Result<void> ClientState::acquire_loop() {
  Loop* const here = Loop::current();
  if (loop == nullptr) loop = here;
  if (loop == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "connect() runs on no loop: await it within sync_wait() or Loop::run(), or give the Client a loop");
  }
  if (here != nullptr && here != loop) {
    return fail(
        ErrorCode::invalid_argument,
        "this client belongs to another loop than the one that runs here: use it on its own loop, or use another "
        "Client here");
  }
  if (here == nullptr) detail::LoopAccess::check_thread(*loop);
  if (!std::exchange(uses_loop_, true)) detail::LoopAccess::add_user(*loop, *this);
  return {};
}

// The loop ends when sync_wait() returns, or when a Loop is destroyed before the clients that use it.
void ClientState::on_loop_end() noexcept {
  loop_ending_ = true;
  scope.clear();
  release_loop();
  if (interception) interception->end("the loop has ended");
  link.set(nullptr);
  link.reason = Error::of_connection(
      ErrorCode::not_sent,
      "not connected any more: the loop that this client was connected on has ended, as the one of sync_wait() "
      "does when that returns: connect and call within one sync_wait(), or use a Loop that lives longer");
  attempted_.reset();
  loop = nullptr;
  uses_loop_ = false;
  loop_ending_ = false;
}

Task<Result<void>> ClientState::connect(std::string to) {
  CO_TRY(acquire_loop());
  if ((connecting() || has_session()) && to != address) {
    co_return fail(ErrorCode::invalid_argument,
                   "this client is connected, or connecting, to " + address + ": close() it first, or use another");
  }
  if (has_session()) co_return Result<void>{};
  if (!attempted_) attempted_ = std::make_shared<exec::Condition>(*loop);
  std::shared_ptr<Attempt> shared = current_attempt_;
  if (!shared) {
    address = std::move(to);
    shared = begin_attempt();
  }
  const std::shared_ptr<exec::Condition> signal = attempted_;  // The client may be destroyed meanwhile.
  while (!shared->outcome) {
    co_await signal->wait();
  }
  co_return *shared->outcome;
}

std::shared_ptr<ClientState::Attempt> ClientState::begin_attempt() {
  const auto own = std::make_shared<Attempt>();
  auto running = attempt(own);
  current_attempt_ = own;
  try {
    scope.spawn(std::move(running));
  } catch (...) {
    current_attempt_.reset();
    throw;
  }
  return own;
}

void ClientState::end_attempt(Attempt& own, Result<void> outcome) {
  own.outcome.emplace(std::move(outcome));
  current_attempt_.reset();
  attempted_->notify_all();
}

void ClientState::close(std::string_view why) {
  if (uses_loop_) detail::LoopAccess::check_thread(*loop);
  end_sessions(why);
  if (!connecting()) return;
  // Waiters learn the result now. The attempt closes the session that it may still open.
  const Error reason = Error::of_connection(ErrorCode::unavailable, std::string(why));
  std::exchange(current_attempt_, nullptr)->outcome.emplace(fail(reason));
  on_attempt_closed(reason);
  if (attempted_) attempted_->notify_all();
}

void ClientState::not_connected_any_more(const Error& reason) {
  link.set(nullptr);
  link.reason = reason;
  link.reason.text = "not connected any more: " + reason.text;
  place_freed();
}

}  // namespace hawser::rpc
