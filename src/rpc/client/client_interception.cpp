#include "rpc/client/client_interception.h"

#include <new>
#include <string>

#include "base/decimal_text.h"
#include "hawser/detail/loop_access.h"
#include "rpc/client/client_session.h"
#include "rpc/client/intercepted_call.h"

namespace hawser::rpc {

ClientInterception::ClientInterception(Duration call_timeout, std::size_t calls_max) noexcept
    : call_timeout_(call_timeout), calls_max_(calls_max) {}
ClientInterception::~ClientInterception() { end("the client was destroyed"); }

void ClientInterception::attach(ConnectionLink& link) noexcept {
  link_ = &link;
  link.interception = weak_from_this();
  link.front = this;
  link.set(link.connection);
}

void ClientInterception::add(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor) {
  auto list = std::make_shared<InterceptorList<OutgoingCall>>(*interceptors_);
  list->push_back(std::move(interceptor));
  interceptors_ = std::move(list);
}

void ClientInterception::end(std::string_view why) {
  at_end_ = nullptr;
  while (!calls_.empty()) {
    const auto at = calls_.begin();
    // Its operation may be destroyed by what this resumes, but not before this returns.
    at->second->fail_outer(
        Error::of_connection(ErrorCode::outcome_unknown, std::string(why) + " while interceptors surrounded the call"));
    calls_.erase(at);
  }
}

void ClientInterception::start(detail::CallOperation& operation) {
  Loop& own = link_->connection->loop();
  Loop* const here = Loop::current();
  if (here == nullptr) detail::LoopAccess::check_thread(own);
  if (here != nullptr && here != &own) return link_->connection->start(operation);  // It refuses the call.
  loop_ = &own;
  const auto refuse = [&](ErrorCode code, std::string text) {
    operation.complete(own, Error::of_call(code, std::move(text)));
  };
  if (calls_.size() >= calls_max_) {
    return refuse(ErrorCode::overloaded, "the interceptors have " + count_text(calls_max_, "call") +
                                             " in flight already (calls_in_flight_max): wait for replies, or raise it");
  }
  InterceptedCall* call = nullptr;
  try {
    while (calls_.contains(next_id_)) ++next_id_;
    const std::uint32_t id = next_id_++;
    const Time deadline = call_deadline(own, operation.request(), call_timeout_);
    auto made = std::make_unique<InterceptedCall>(*this, operation, id, deadline);
    call = made.get();
    calls_.emplace(id, std::move(made));
    try {
      operation.begin(*this, id, deadline);
    } catch (...) {
      calls_.erase(id);
      throw;
    }
  } catch (const std::bad_alloc&) {
    return refuse(ErrorCode::internal, "no memory for the interceptors of the call; it was not sent");
  }
  // The arguments are used until the request is sent.
  operation.loan();
  call->start();
}

void ClientInterception::abandon(detail::CallOperation& operation) noexcept { remove(operation.id()); }

void ClientInterception::remove(std::uint32_t id) noexcept {
  if (calls_.erase(id) != 0 && at_end_) at_end_();
}

void ClientInterception::cancel(std::uint32_t id, const Error& error) {
  if (const auto at = calls_.find(id); at != calls_.end()) at->second->stop(error);
}

}  // namespace hawser::rpc
