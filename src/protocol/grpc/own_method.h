#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/detail/handler.h"
#include "hawser/detail/protobuf_bodies.h"
#include "hawser/server.h"
#include "protocol/grpc/proto_bytes.h"

// Methods of services that the component has itself.
namespace hawser::protocol::grpc {

// Keeps the state as long as the handler.
template <auto F, class State>
class OwnHandler final : public detail::Handler {
 public:
  explicit OwnHandler(std::shared_ptr<State> state) : state_(std::move(state)), handler_(state_.get(), {}) {}
  void serve(const detail::IncomingRequest& request) override { handler_.serve(request); }

 private:
  const std::shared_ptr<State> state_;
  detail::FunctionHandler<F, State> handler_;
};

// Registers a member function of the state, whose messages are ProtoBytes.
template <auto F, class State>
void add_own_method(Server& server, const std::shared_ptr<State>& state, std::string_view name) {
  using Facts = detail::MethodFacts<F>;
  server.add_method({.id = codec::fnv1a32(name),
                     .signature = Facts::signature,
                     .name = std::string(name),
                     .handler = std::make_unique<OwnHandler<F, State>>(state),
                     .streams_in = !std::is_same_v<typename Facts::incoming, detail::NoStream>,
                     .streams_out = !std::is_same_v<typename Facts::outgoing, detail::NoStream>,
                     .json = std::make_shared<detail::ProtobufBodies>()});
}

}  // namespace hawser::protocol::grpc
