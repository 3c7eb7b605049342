#include "negotiate/server_machine.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace hawser::negotiate {
namespace {

wire::NamedBytes with_reason(std::string_view name, std::string_view reason) {
  const Bytes bytes = as_bytes(reason);
  return {std::string(name), {bytes.begin(), bytes.end()}};
}

}  // namespace

ServerMachine::ServerMachine(ServerSide ours) : ours_(std::move(ours)) {}

Action ServerMachine::on_message(HelloMessage message) {
  if (state_ == State::greeting) {
    if (FirstHello* const first = std::get_if<FirstHello>(&message)) return on_first(std::move(*first));
  } else if (state_ == State::selected) {
    if (AnswerHello* const answer = std::get_if<AnswerHello>(&message)) return on_answer(std::move(*answer));
  }
  return end(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                  "invalid client HELLO: " + std::string(name_of(message)) + " is not expected now"));
}

Action ServerMachine::on_first(FirstHello first) {
  if (std::optional<Error> why = refusal_of(first)) return end(std::move(*why));
  agreed_ = settle(ours_.terms, first.terms);
  offers_ = std::move(first.offers);
  if (ours_.terms.protection != 0 && ours_.stream_only.empty()) {
    ours_.stream_only = path_refusal_of_server(ours_.terms, first.terms);
  }
  // The client gets what applies to the connection.
  ours_.terms.checksum = agreed_.checksum;
  ours_.terms.protection = agreed_.protection;
  return next();
}

std::optional<Error> ServerMachine::refusal_of(const FirstHello& first) const {
  if (first.version_min > wire::version || first.version_max < wire::version) {
    return Error::of_connection(ErrorCode::protocol_error, "the server speaks version 1 of the protocol, the client " +
                                                               std::to_string(first.version_min) + " to " +
                                                               std::to_string(first.version_max));
  }
  if (first.terms.message_bytes_max < wire::message_bytes_least) {
    return Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                "invalid client HELLO: message_bytes_max is " +
                                    std::to_string(first.terms.message_bytes_max) + ", and the shortest message has " +
                                    std::to_string(wire::message_bytes_least) + " bytes");
  }
  return ours_.refusal;
}

// Selects the next transport that the client offered.
Action ServerMachine::next() {
  while (next_ < ours_.transports.size()) {
    transport_ = ours_.transports[next_++];
    const wire::NamedBytes* const offered = ours_.stream_only.empty() ? offer() : nullptr;
    if (offered == nullptr) {
      note("the client did not offer it");
      continue;
    }
    state_ = State::making;
    return MakeHalf{std::string(transport_), offered->bytes};
  }
  return without_path();
}

Action ServerMachine::without_path() {
  for (const wire::NamedBytes& offered : offers_) {
    if (!ours_.stream_only.empty()) {
      declined_.push_back(with_reason(offered.name, ours_.stream_only));
    } else if (std::ranges::find(ours_.transports, offered.name) == ours_.transports.end()) {
      transport_ = offered.name;
      failed("the server has not enabled it");
    }
  }
  transport_ = {};
  state_ = State::ended;
  return OpenStream{SelectionHello{.terms = ours_.terms, .declined = std::exchange(declined_, {})}};
}

Action ServerMachine::on_half(Result<std::vector<std::byte>> parameters) {
  assert(state_ == State::making);
  if (!parameters) {
    failed(parameters.error().text);
    return next();
  }
  state_ = State::selected;
  half_ = std::move(*parameters);
  return SendHello{SelectionHello{.terms = ours_.terms,
                                  .selected = wire::NamedBytes{std::string(transport_), half_},
                                  .declined = std::exchange(declined_, {})}};
}

Action ServerMachine::on_answer(AnswerHello answer) {
  if (!answer.half) {
    failed(answer.half.error());
    return next();
  }
  state_ = State::connecting;
  answer_ = std::move(*answer.half);
  return ConnectHalf{answer_};
}

Action ServerMachine::on_connected(const Result<void>& outcome) {
  assert(state_ == State::connecting);
  if (!outcome) {
    failed(outcome.error().text);
    return next();
  }
  state_ = State::ended;
  agreed_ = agreed_.on_path();
  return OpenPath{ReadyHello()};
}

transport::PathTerms ServerMachine::path_terms() const noexcept {
  const wire::NamedBytes* const offered = offer();
  return {.transport = transport_,
          .offer = offered == nullptr ? Bytes() : Bytes(offered->bytes),
          .selection = half_,
          .answer = answer_,
          .protection = static_cast<transport::PathProtection>(agreed_.protection)};
}

Action ServerMachine::end(Error why) {
  state_ = State::ended;
  return EndNegotiation{why, RefusalHello{why}};
}

const wire::NamedBytes* ServerMachine::offer() const noexcept {
  const auto at = std::ranges::find(offers_, transport_, &wire::NamedBytes::name);
  return at == offers_.end() ? nullptr : &*at;
}

void ServerMachine::note(std::string_view reason) {
  if (reasons_.size() >= reasons_max) return;
  reasons_.push_back((std::string(transport_) + ": " + std::string(reason)).substr(0, reason_bytes_max));
}

void ServerMachine::failed(const std::string& reason) {
  ++failures_;
  note(reason);
  declined_.push_back(with_reason(transport_, reason));
}

}  // namespace hawser::negotiate
