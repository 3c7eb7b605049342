#include "negotiate/messages.h"

#include <algorithm>
#include <utility>

namespace hawser::negotiate {
namespace {

constexpr std::string_view unanswered = "the client did not answer the selection of this transport";

std::uint32_t clamped(std::size_t value) noexcept {
  return static_cast<std::uint32_t>(std::min<std::size_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

wire::Hello with_terms(std::uint8_t version_min, std::uint8_t version_max, const Terms& terms) {
  return {.version_min = version_min,
          .version_max = version_max,
          .checksum = terms.checksum,
          .memory = terms.memory,
          .message_bytes_max = clamped(terms.message_bytes_max),
          .stream_window_bytes = terms.stream_window_bytes,
          .protection = terms.protection};
}

wire::Hello without_terms() { return {.version_min = wire::version, .version_max = wire::version}; }

Terms terms_of(const wire::Hello& hello) noexcept {
  return {.checksum = hello.checksum,
          .memory = hello.memory,
          .message_bytes_max = hello.message_bytes_max,
          .stream_window_bytes = hello.stream_window_bytes,
          .protection = hello.protection};
}

struct HelloEncoder {
  wire::Hello operator()(const FirstHello& first) const {
    wire::Hello hello = with_terms(first.version_min, first.version_max, first.terms);
    hello.offers = first.offers;
    return hello;
  }
  wire::Hello operator()(const SelectionHello& selection) const {
    wire::Hello hello = with_terms(selection.version_min, selection.version_max, selection.terms);
    hello.calls_max = clamped(selection.terms.calls_max);
    hello.selection = selection.selected;
    hello.declined = selection.declined;
    return hello;
  }
  wire::Hello operator()(const AnswerHello& answer) const {
    wire::Hello hello = without_terms();
    if (answer.half) {
      hello.answer = *answer.half;
    } else {
      hello.unanswered = answer.half.error();
    }
    return hello;
  }
  wire::Hello operator()(const ReadyHello&) const {
    wire::Hello hello = without_terms();
    hello.ready = true;
    return hello;
  }
  wire::Hello operator()(const RefusalHello& refusal) const {
    wire::Hello hello = without_terms();
    hello.refusal = refusal.why;
    return hello;
  }
};

}  // namespace

std::string_view name_of(const HelloMessage& message) noexcept {
  constexpr std::string_view names[] = {"a first HELLO", "a selection", "an answer", "ready", "a refusal"};
  static_assert(std::size(names) == std::variant_size_v<HelloMessage>);
  return names[message.index()];
}

wire::Hello to_hello(const HelloMessage& message) { return std::visit(HelloEncoder(), message); }

FirstHello first_of(wire::Hello hello) {
  return {.version_min = hello.version_min,
          .version_max = hello.version_max,
          .terms = terms_of(hello),
          .offers = std::move(hello.offers)};
}

AnswerHello answer_of(wire::Hello hello) {
  if (hello.unanswered) return {std::unexpected(std::move(*hello.unanswered))};
  if (!hello.answer) return {std::unexpected(std::string(unanswered))};
  return {std::move(*hello.answer)};
}

HelloMessage server_message_of(wire::Hello hello) {
  if (hello.refusal) return RefusalHello{std::move(*hello.refusal)};
  if (hello.ready) return ReadyHello();
  SelectionHello selection{.version_min = hello.version_min,
                           .version_max = hello.version_max,
                           .terms = terms_of(hello),
                           .selected = std::move(hello.selection),
                           .declined = std::move(hello.declined)};
  selection.terms.calls_max = hello.calls_max;
  return selection;
}

}  // namespace hawser::negotiate
