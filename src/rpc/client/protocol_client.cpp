#include "rpc/client/protocol_client.h"

#include "rpc/client/client_access.h"
#include "rpc/client/client_interception.h"
#include "rpc/negotiation/dial.h"
#include "transport/network.h"

namespace hawser::rpc {

ProtocolClient::ProtocolClient(Loop* loop, Duration connect_timeout,
                               std::shared_ptr<transport::ClientSecurity> security, std::string_view alpn,
                               std::string_view protocol)
    : connect_timeout_(connect_timeout),
      security_(std::move(security)),
      alpn_(alpn),
      loop_(loop),
      link_(address_, protocol) {
  link_.reason = {ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
                  "not connected: co_await connect(address) first"};
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
  link_.reason = {ErrorCode::not_sent, ErrorScope::connection, reason.initiator, 0,
                  "not connected any more: " + reason.text};
  session_.reset();  // The session keeps itself alive until its function returns.
}

void ProtocolClient::on_loop_end() noexcept {
  close("the loop has ended");
  if (const auto interception = link_.interception.lock()) interception->end("the loop has ended");
  uses_loop_ = false;
  loop_ = nullptr;
}

void ProtocolClient::close(std::string why) {
  closed_ = true;
  if (session_ == nullptr) return;
  session_->end({ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, std::move(why)});
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
  if (self.connecting_) {
    co_return fail(ErrorCode::invalid_argument, "this client is connecting already: await that connect()");
  }
  if (self.session_ != nullptr) co_return Result<void>();
  self.address_ = address;
  if (!std::exchange(self.uses_loop_, true)) detail::LoopAccess::add_user(*self.loop_, self);
  struct Connecting {
    explicit Connecting(bool& on) : flag(on) { flag = true; }
    ~Connecting() { flag = false; }
    bool& flag;
  };
  Result<std::unique_ptr<transport::Stream>> stream;
  {
    const Connecting connecting(self.connecting_);
    self.closed_ = false;
    auto opening = connect_stream(*self.loop_, *self.network_, address, self.security_, self.alpn_,
                                  self.loop_->after(self.connect_timeout_));
    stream = co_await std::move(opening);
  }
  if (!stream) co_return std::unexpected(std::move(stream.error()));
  if (self.closed_) co_return fail(ErrorCode::unavailable, "the client was closed", ErrorScope::connection);
  const std::shared_ptr<ProtocolSession> session = self.open(*self.loop_, std::move(*stream), address, self);
  self.session_ = session;
  self.link_.set(session.get());
  session->begin();
  co_return Result<void>();
}

}  // namespace hawser::rpc
