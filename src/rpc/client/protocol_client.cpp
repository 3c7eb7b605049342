#include "rpc/client/protocol_client.h"

#include <exception>
#include <string>
#include <utility>

#include "base/what_of.h"
#include "negotiate/dial.h"

namespace hawser::rpc {

ProtocolClient::ProtocolClient(Loop* on, std::shared_ptr<transport::Network> through, ClientOptions given)
    : ClientState(on, std::move(through), given, given.protocol->name()) {}

Task<Result<Duration>> ProtocolClient::ping() {
  co_return fail(ErrorCode::invalid_argument,
                 "the client speaks " + std::string(link.protocol) + ", which has no ping(): make a call");
}

Task<void> ProtocolClient::attempt(std::shared_ptr<Attempt> own) {
  Result<void> outcome;
  try {
    auto stream = co_await negotiate::connect_stream(*loop, *network, address, options.security,
                                                     options.protocol->alpn(), loop->after(options.connect_timeout));
    if (own->outcome) co_return;  // The client was closed meanwhile.
    outcome = stream ? use(std::move(*stream)) : fail(std::move(stream.error()));
  } catch (const std::exception& error) {
    if (own->outcome) co_return;
    outcome = fail(Error::of_connection(ErrorCode::unavailable,
                                        "cannot connect to " + address + ": " + std::string(what_of(error))));
    end_sessions("the session could not begin");  // use() may have set it.
  }
  end_attempt(*own, std::move(outcome));
}

Result<void> ProtocolClient::use(std::unique_ptr<transport::Stream> stream) {
  const auto session = options.protocol->open(*loop, std::move(stream), address, options, *this);
  session_ = session;
  link.set(session.get());
  session->begin();
  if (session_ == nullptr) return fail(link.reason);
  place_freed();
  return {};
}

void ProtocolClient::end_sessions(std::string_view why) {
  if (session_ != nullptr) session_->end(Error::of_connection(ErrorCode::unavailable, std::string(why)));
}

void ProtocolClient::on_session_end(const Error& reason) {
  session_.reset();  // The session keeps itself alive until its function returns.
  not_connected_any_more(reason);
}

}  // namespace hawser::rpc
