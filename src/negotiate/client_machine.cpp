#include "negotiate/client_machine.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace hawser::negotiate {

ClientMachine::ClientMachine(ClientSide ours) : ours_(std::move(ours)), reasons_(ours_.not_offered) {
  for (const wire::NamedBytes& offer : ours_.offers) {
    left_.push_back(offer.name);
    reasons_.push_back({offer.name, "the server has enabled none, or prefers another transport"});
  }
}

Action ClientMachine::start() const { return SendHello{FirstHello{.terms = ours_.terms, .offers = ours_.offers}}; }

Action ClientMachine::on_message(HelloMessage message) {
  const bool waiting = state_ == State::greeting || state_ == State::answered || state_ == State::declined;
  if (waiting) {
    if (RefusalHello* const refusal = std::get_if<RefusalHello>(&message)) return end(std::move(refusal->why));
    if (SelectionHello* const one = std::get_if<SelectionHello>(&message)) return on_selection(std::move(*one));
    if (std::holds_alternative<ReadyHello>(message)) return on_ready();
  }
  return violation(std::string(name_of(message)) + " is not expected now");
}

Action ClientMachine::on_selection(SelectionHello selection) {
  if (state_ == State::greeting) {
    if (const Result<void> valid = wire::check_server_hello(to_hello(selection)); !valid) return end(valid.error());
    agreed_ = settle(ours_.terms, selection.terms);
    if (ours_.terms.protection != 0) path_refusal_ = path_refusal_of_client(ours_.terms, selection.terms);
  }
  for (const wire::NamedBytes& one : selection.declined) set_reason(one.name, as_text(one.bytes));
  if (!selection.selected) {
    state_ = State::ended;
    transport_.clear();
    return OpenStream();
  }
  const auto offered = std::ranges::find(left_, selection.selected->name);
  if (offered == left_.end()) {
    return violation("it proposes the transport '" + selection.selected->name +
                     "', which was not offered, or proposes it again");
  }
  left_.erase(offered);
  transport_ = std::move(selection.selected->name);
  server_half_ = std::move(selection.selected->bytes);
  if (!path_refusal_.empty()) return answer({std::unexpected(path_refusal_)});
  state_ = State::making;
  return MakeHalf{transport_, server_half_};
}

Action ClientMachine::on_ready() {
  if (state_ != State::answered) return violation("ready for a transport that was not agreed on");
  state_ = State::ended;
  agreed_ = agreed_.on_path();
  std::erase_if(reasons_, [this](const TransportFallback& one) { return one.transport == transport_; });
  return OpenPath();
}

Action ClientMachine::on_half(Result<std::vector<std::byte>> parameters) {
  assert(state_ == State::making);
  if (!parameters) return answer({std::unexpected(std::move(parameters.error().text))});
  return answer({std::move(*parameters)});
}

Action ClientMachine::answer(AnswerHello answer) {
  if (answer.half) {
    state_ = State::answered;
    own_half_ = *answer.half;
  } else {
    state_ = State::declined;
    set_reason(transport_, answer.half.error());
  }
  return SendHello{std::move(answer)};
}

transport::PathTerms ClientMachine::path_terms() const noexcept {
  const auto offered = std::ranges::find(ours_.offers, transport_, &wire::NamedBytes::name);
  return {.transport = transport_,
          .offer = offered == ours_.offers.end() ? Bytes() : Bytes(offered->bytes),
          .selection = server_half_,
          .answer = own_half_,
          .protection = static_cast<transport::PathProtection>(agreed_.protection)};
}

Action ClientMachine::end(Error why) {
  state_ = State::ended;
  return EndNegotiation{std::move(why)};
}

Action ClientMachine::violation(const std::string& text) {
  return end(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, "invalid server HELLO: " + text));
}

// Records why the client does not use a transport. A server may decline one that the client does not have: nothing is
// recorded then.
void ClientMachine::set_reason(std::string_view transport, std::string_view reason) {
  const auto at = std::ranges::find(reasons_, transport, &TransportFallback::transport);
  if (at != reasons_.end()) at->reason = reason;
}

}  // namespace hawser::negotiate
