#include "rpc/client/protocol_client.h"

#include <exception>
#include <optional>

#include "base/try.h"
#include "base/what_of.h"
#include "exec/condition.h"
#include "negotiate/dial.h"
#include "rpc/client/client_access.h"
#include "rpc/client/client_interception.h"
#include "transport/network.h"

namespace hawser::rpc {

struct ProtocolClient::Attempt {
  explicit Attempt(Loop& loop) noexcept : ended(loop) {}
  std::optional<Result<std::unique_ptr<transport::Stream>>> stream;
  exec::Condition ended;
};

ProtocolClient::ProtocolClient(Loop* loop, Duration connect_timeout,
                               std::shared_ptr<transport::ClientSecurity> security, std::string_view alpn,
                               std::string_view protocol)
    : connect_timeout_(connect_timeout),
      security_(std::move(security)),
      alpn_(alpn),
      loop_(loop),
      link_(address_, protocol) {
  link_.reason = Error::of_connection(ErrorCode::not_sent, "not connected: co_await connect(address) first");
}

ProtocolClient::~ProtocolClient() {
  if (uses_loop_) detail::LoopAccess::remove_user(*loop_, *this);
}

void ProtocolClient::attach(Client& calls) {
  network_ = detail::ClientAccess::network(calls);
  detail::ClientAccess::set_link(calls, link_);
}

void ProtocolClient::on_session_end(const Error& reason) {
  link_.set(nullptr);
  link_.reason = Error::of_connection(reason.initiator, ErrorCode::not_sent, "not connected any more: " + reason.text);
  session_.reset();  // The session keeps itself alive until its function returns.
}

void ProtocolClient::on_loop_end() noexcept {
  const std::shared_ptr<ProtocolClient> alive = shared_from_this();
  scope_.clear();
  // A connect() that was resumed, and does not run any more, has the stream.
  if (const auto attempt = std::exchange(connecting_, nullptr)) attempt->stream.reset();
  close("the loop has ended");
  if (const auto interception = link_.interception.lock()) interception->end("the loop has ended");
  uses_loop_ = false;
  loop_ = nullptr;
}

void ProtocolClient::close(std::string why) {
  closed_ = true;
  if (session_ == nullptr) return;
  session_->end(Error::of_connection(ErrorCode::unavailable, std::move(why)));
}

Task<Result<void>> ProtocolClient::connect(std::string address) {
  return connect_to(shared_from_this(), std::move(address));
}

// The client may be destroyed while this runs.
Task<Result<void>> ProtocolClient::connect_to(std::shared_ptr<ProtocolClient> client, std::string address) {
  ProtocolClient& self = *client;
  if (self.loop_ == nullptr) self.loop_ = Loop::current();
  if (self.loop_ == nullptr || (Loop::current() != nullptr && Loop::current() != self.loop_)) {
    co_return fail(ErrorCode::invalid_argument,
                   "connect() must run on the client's loop: await it within sync_wait() or Loop::run()");
  }
  if (self.connecting_ != nullptr) {
    co_return fail(ErrorCode::invalid_argument, "this client is connecting already: await that connect()");
  }
  if (self.session_ != nullptr) co_return Result<void>();
  self.address_ = std::move(address);
  if (!std::exchange(self.uses_loop_, true)) detail::LoopAccess::add_user(*self.loop_, self);
  const auto own = self.connecting_ = std::make_shared<Attempt>(*self.loop_);
  // Ends the attempt if this coroutine is destroyed, unless the loop has ended it.
  struct Connecting {
    ~Connecting() {
      if (client.connecting_ != own) return;
      client.connecting_ = nullptr;
      client.scope_.clear();
    }
    ProtocolClient& client;
    const std::shared_ptr<Attempt>& own;
  };
  const Connecting connecting{self, own};
  self.closed_ = false;
  self.scope_.spawn(self.attempt(own));
  while (!own->stream) {
    co_await own->ended.wait();
  }
  CO_TRY(std::unique_ptr<transport::Stream> stream, std::move(*own->stream));
  if (self.closed_) co_return fail(Error::of_connection(ErrorCode::unavailable, "the client was closed"));
  const std::shared_ptr<ProtocolSession> session = self.open(*self.loop_, std::move(stream), self.address_, self);
  self.session_ = session;
  self.link_.set(session.get());
  session->begin();
  co_return Result<void>();
}

// The scope of the client owns it, so that a connect() that outlives the loop holds nothing of the loop.
Task<void> ProtocolClient::attempt(std::shared_ptr<Attempt> own) {
  try {
    own->stream = co_await negotiate::connect_stream(*loop_, *network_, address_, security_, alpn_,
                                                     loop_->after(connect_timeout_));
  } catch (const std::exception& error) {
    own->stream = fail(Error::of_connection(ErrorCode::unavailable,
                                            "cannot connect to " + address_ + ": " + std::string(what_of(error))));
  }
  own->ended.notify_all();
}

}  // namespace hawser::rpc
