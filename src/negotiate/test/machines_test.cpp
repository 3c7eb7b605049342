#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "negotiate/test/machines_testing.h"

namespace hawser::negotiate {
namespace {

constexpr std::string_view names[] = {"a", "b", "c"};

// Every list of different names out of `names`, in every order.
std::vector<std::vector<std::string_view>> all_orders() {
  std::vector<std::vector<std::string_view>> all = {{}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const std::string_view name : names) {
      if (std::ranges::find(all[i], name) != all[i].end()) continue;
      std::vector<std::string_view> longer = all[i];
      longer.push_back(name);
      all.push_back(std::move(longer));
    }
  }
  return all;
}

ClientSide offering(const std::vector<std::string_view>& transports) {
  ClientSide side{.terms = client_terms()};
  for (const std::string_view name : transports) side.offers.push_back(offer_of(std::string(name)));
  side.not_offered = {{"d", "no device"}};
  return side;
}

void expect_agreed(const ConnectedMachines& peers) {
  const Agreement& client = peers.client.agreed();
  const Agreement& server = peers.server.agreed();
  EXPECT_TRUE(client.checksum && server.checksum);
  EXPECT_FALSE(client.peer_memory);
  EXPECT_TRUE(server.peer_memory);
  EXPECT_EQ(client.send_bytes_max, server.send_bytes_max);
  EXPECT_EQ(client.calls_max, server.calls_max);
  EXPECT_EQ(client.own_window_bytes, server.peer_window_bytes);
  EXPECT_EQ(client.peer_window_bytes, server.own_window_bytes);
  EXPECT_EQ(client.protection, server.protection);
}

void expect_one_path(const ConnectedMachines& peers) {
  const transport::PathTerms client = peers.client.path_terms();
  const transport::PathTerms server = peers.server.path_terms();
  EXPECT_EQ(client.transport, server.transport);
  EXPECT_TRUE(std::ranges::equal(client.offer, server.offer));
  EXPECT_TRUE(std::ranges::equal(client.selection, server.selection));
  EXPECT_TRUE(std::ranges::equal(client.answer, server.answer));
  EXPECT_FALSE(client.offer.empty() || client.selection.empty() || client.answer.empty());
  EXPECT_EQ(client.protection, server.protection);
}

// Checks the outcome of one run, and returns the transport that carries the messages.
std::string check(const ConnectedMachines& peers, const std::vector<std::string_view>& offered,
                  const std::vector<std::string_view>& enabled) {
  const std::string carrier(peers.server.transport());
  EXPECT_EQ(peers.client.transport(), carrier);
  EXPECT_TRUE(peers.client_end && peers.server_end);
  if (!peers.client_end || !peers.server_end) return carrier;
  EXPECT_EQ(std::holds_alternative<OpenPath>(*peers.client_end), !carrier.empty());
  EXPECT_EQ(std::holds_alternative<OpenStream>(*peers.client_end), carrier.empty());
  EXPECT_EQ(peers.client_end->index(), peers.server_end->index());
  expect_agreed(peers);
  if (!carrier.empty()) expect_one_path(peers);
  // The server tries what both have, once, in its order, up to the one that works.
  std::vector<std::string> both;
  for (const std::string_view name : enabled) {
    if (std::ranges::find(offered, name) == offered.end()) continue;
    both.emplace_back(name);
    if (name == carrier) break;
  }
  EXPECT_EQ(peers.tried, both);
  EXPECT_EQ(peers.server.failures(), carrier.empty() ? offered.size() : both.size() - 1);
  std::vector<std::string> declined = peers.declined;
  std::ranges::sort(declined);
  EXPECT_EQ(std::ranges::adjacent_find(declined), declined.end()) << "declined twice";
  // Each transport that does not carry the messages has one reason.
  std::map<std::string, int> reasons;
  for (const TransportFallback& one : peers.client.fallback_reasons()) ++reasons[one.transport];
  EXPECT_EQ(reasons.size(), peers.client.fallback_reasons().size());
  EXPECT_EQ(reasons.size(), offered.size() + (carrier.empty() ? 1 : 0));
  EXPECT_EQ(reasons.count(carrier), 0U);
  return carrier;
}

// Every choice of transports on both sides, in every order, and every outcome of every step.
TEST(Machines, AgreeInAllOrdersOfMessages) {
  std::map<std::string, int> carried;
  for (const auto& offered : all_orders()) {
    for (const auto& enabled : all_orders()) {
      Choices choices;
      do {
        ConnectedMachines peers(offering(offered), {.terms = server_terms(), .transports = enabled}, choices);
        peers.run();
        ++carried[check(peers, offered, enabled)];
        ASSERT_FALSE(::testing::Test::HasFailure()) << "offered " << offered.size() << ", enabled " << enabled.size();
      } while (choices.advance());
    }
  }
  EXPECT_EQ(carried.size(), 4U);
  EXPECT_EQ(carried["a"], carried["b"]);
  EXPECT_EQ(carried["b"], carried["c"]);
}

TEST(Machines, TheServersReasonsReachTheClient) {
  Choices choices;
  ConnectedMachines peers(offering({"a", "c"}), {.terms = server_terms(), .transports = {"a", "b"}}, choices);
  peers.run();
  std::map<std::string, std::string> reasons;
  for (const TransportFallback& one : peers.client.fallback_reasons()) reasons[one.transport] = one.reason;
  EXPECT_EQ(reasons["a"], "not here");
  EXPECT_EQ(reasons["c"], "the server has not enabled it");
  EXPECT_EQ(reasons["d"], "no device");
  EXPECT_EQ(peers.server.reasons(), (std::vector<std::string>{"a: not here", "b: the client did not offer it",
                                                              "c: the server has not enabled it"}));
}

TEST(Machines, TheReasonsAreBounded) {
  ServerMachine many({.terms = server_terms(), .transports = {"1", "2", "3", "4", "5", "6", "7"}});
  many.on_message(first_hello({}));
  EXPECT_EQ(many.reasons().size(), ServerMachine::reasons_max);
  ServerMachine lengthy({.terms = server_terms(), .transports = {"a"}});
  lengthy.on_message(first_hello());
  lengthy.on_half(fail(Error::of_transport(ErrorCode::unavailable, std::string(1000, 'x'))));
  ASSERT_FALSE(lengthy.reasons().empty());
  EXPECT_EQ(lengthy.reasons()[0].size(), ServerMachine::reason_bytes_max);
}

TEST(Machines, TheClientKeepsItsOwnReason) {
  ClientMachine client(offering({"a"}));
  client.on_message(selection_of("a"));
  client.on_half(no_half());
  ASSERT_EQ(client.fallback_reasons().size(), 2U);
  EXPECT_EQ(client.fallback_reasons()[1].transport, "a");
  EXPECT_EQ(client.fallback_reasons()[1].reason, "not here");
}

TEST(Machines, TheServerGrantsChecksumsOnRequestOnly) {
  FirstHello hello = first_hello({});
  for (const bool requested : {false, true}) {
    hello.terms.checksum = requested;
    const Action action = ServerMachine({.terms = server_terms()}).on_message(hello);
    ASSERT_TRUE(std::holds_alternative<OpenStream>(action));
    EXPECT_EQ(std::get<SelectionHello>(*std::get<OpenStream>(action).last).terms.checksum, requested);
  }
}

TEST(Machines, ARefusalEndsBoth) {
  Choices choices;
  const Error full = Error::of_connection(ErrorCode::overloaded, "full");
  ConnectedMachines peers(offering({"a"}), {.terms = server_terms(), .refusal = full, .transports = {"a"}}, choices);
  peers.run();
  ASSERT_TRUE(peers.client_end && std::holds_alternative<EndNegotiation>(*peers.client_end));
  EXPECT_EQ(std::get<EndNegotiation>(*peers.client_end).why.code, ErrorCode::overloaded);
  EXPECT_EQ(std::get<EndNegotiation>(*peers.client_end).why.text, "full");
  EXPECT_TRUE(peers.server_end && std::holds_alternative<EndNegotiation>(*peers.server_end));
  EXPECT_TRUE(peers.tried.empty());
}

// ---- Messages in wrong states ----

const HelloMessage every_message[] = {first_hello(), selection_of("a"), AnswerHello{octets("half")}, ReadyHello(),
                                      RefusalHello{Error::of_connection(ErrorCode::unavailable, "gone")}};

template <class Machine>
struct Prepared {
  const char* state;
  Machine machine;
  std::vector<std::size_t> expected;  // Indexes of the messages that belong to this state.
};

template <class Machine>
void expect_others_refused(const std::vector<Prepared<Machine>>& all) {
  for (const Prepared<Machine>& one : all) {
    for (const HelloMessage& message : every_message) {
      SCOPED_TRACE(std::string(one.state) + " gets " + std::string(name_of(message)));
      Machine machine = one.machine;
      const Action action = machine.on_message(message);
      const EndNegotiation* const end = std::get_if<EndNegotiation>(&action);
      if (std::ranges::find(one.expected, message.index()) != one.expected.end()) {
        EXPECT_TRUE(end == nullptr || end->why.code != ErrorCode::protocol_error);
        continue;
      }
      ASSERT_NE(end, nullptr);
      EXPECT_EQ(end->why.code, ErrorCode::protocol_error);
      EXPECT_EQ(end->why.initiator, Initiator::peer);
      // Nothing is accepted after that.
      for (const HelloMessage& later : every_message) {
        const Action again = machine.on_message(later);
        const EndNegotiation* const still = std::get_if<EndNegotiation>(&again);
        ASSERT_NE(still, nullptr);
        EXPECT_EQ(still->why.code, ErrorCode::protocol_error);
      }
    }
  }
}

constexpr std::size_t first = 0;
constexpr std::size_t selection = 1;
constexpr std::size_t answer = 2;
constexpr std::size_t ready = 3;
constexpr std::size_t refusal = 4;

TEST(Machines, TheServerRefusesEachMessageInEachWrongState) {
  const ServerMachine greeting({.terms = server_terms(), .transports = {"a", "b"}});
  ServerMachine making = greeting;
  ASSERT_TRUE(std::holds_alternative<MakeHalf>(making.on_message(first_hello())));
  ServerMachine selected = making;
  ASSERT_TRUE(std::holds_alternative<SendHello>(selected.on_half(octets("half"))));
  ServerMachine connecting = selected;
  ASSERT_TRUE(std::holds_alternative<ConnectHalf>(connecting.on_message(AnswerHello{octets("half")})));
  ServerMachine second = connecting;
  ASSERT_TRUE(std::holds_alternative<MakeHalf>(second.on_connected(no_half())));
  ServerMachine on_path = connecting;
  ASSERT_TRUE(std::holds_alternative<OpenPath>(on_path.on_connected({})));
  ServerMachine on_stream = second;
  ASSERT_TRUE(std::holds_alternative<OpenStream>(on_stream.on_half(no_half())));
  expect_others_refused<ServerMachine>({{"greeting", greeting, {first}},
                                        {"making", making, {}},
                                        {"selected", selected, {answer}},
                                        {"connecting", connecting, {}},
                                        {"making the second", second, {}},
                                        {"on a path", on_path, {}},
                                        {"on the stream", on_stream, {}}});
}

TEST(Machines, TheClientRefusesEachMessageInEachWrongState) {
  const ClientMachine greeting(offering({"a", "b"}));
  ClientMachine making = greeting;
  ASSERT_TRUE(std::holds_alternative<MakeHalf>(making.on_message(selection_of("b"))));
  ClientMachine answered = making;
  ASSERT_TRUE(std::holds_alternative<SendHello>(answered.on_half(octets("half"))));
  ClientMachine declined = making;
  ASSERT_TRUE(std::holds_alternative<SendHello>(declined.on_half(no_half())));
  ClientMachine on_path = answered;
  ASSERT_TRUE(std::holds_alternative<OpenPath>(on_path.on_message(ReadyHello())));
  ClientMachine on_stream = declined;
  ASSERT_TRUE(std::holds_alternative<OpenStream>(on_stream.on_message(SelectionHello{.terms = server_terms()})));
  expect_others_refused<ClientMachine>({{"greeting", greeting, {selection, refusal}},
                                        {"making", making, {}},
                                        {"answered", answered, {selection, ready, refusal}},
                                        {"declined", declined, {selection, refusal}},
                                        {"on a path", on_path, {}},
                                        {"on the stream", on_stream, {}}});
}

void expect_violation(const Action& action, std::string_view text) {
  const EndNegotiation* const end = std::get_if<EndNegotiation>(&action);
  ASSERT_NE(end, nullptr) << text;
  EXPECT_EQ(end->why.code, ErrorCode::protocol_error);
  EXPECT_NE(end->why.text.find(text), std::string::npos) << end->why.text;
}

TEST(Machines, TheClientRefusesWhatItDidNotOffer) {
  ClientMachine other(offering({"a"}));
  expect_violation(other.on_message(selection_of("b")), "'b', which was not offered");
  ClientMachine again(offering({"a"}));
  again.on_message(selection_of("a"));
  again.on_half(no_half());
  expect_violation(again.on_message(selection_of("a")), "proposes it again");
}

TEST(Machines, TheClientChecksTheTermsOfTheFirstSelectionOnly) {
  const auto told = [](SelectionHello hello) { return ClientMachine(offering({"a"})).on_message(std::move(hello)); };
  SelectionHello hello = selection_of("a");
  hello.terms.calls_max = 0;
  expect_violation(told(hello), "calls_max is 0");
  hello = selection_of("a");
  hello.terms.message_bytes_max = wire::message_bytes_least - 1;
  expect_violation(told(hello), "message_bytes_max is 35");
  hello = selection_of("a");
  hello.version_max = 2;
  expect_violation(told(hello), "versions 1 to 2");
  ClientMachine client(offering({"a"}));
  client.on_message(selection_of("a"));
  const Agreement agreed = client.agreed();
  client.on_half(no_half());
  EXPECT_TRUE(std::holds_alternative<OpenStream>(client.on_message(SelectionHello())));
  EXPECT_EQ(client.agreed(), agreed);
}

TEST(Machines, TheServerChecksTheTermsOfTheClient) {
  const auto told = [](FirstHello hello) {
    return ServerMachine({.terms = server_terms()}).on_message(std::move(hello));
  };
  FirstHello hello = first_hello();
  hello.version_min = hello.version_max = 2;
  expect_violation(told(hello), "the client 2 to 2");
  hello = first_hello();
  hello.terms.message_bytes_max = wire::message_bytes_least - 1;
  expect_violation(told(hello), "message_bytes_max is 35");
}

// ---- Within TLS ----

constexpr std::uint8_t none = 0;
constexpr std::uint8_t authenticated = 1;
constexpr std::uint8_t sealed = 3;
constexpr std::uint8_t unknown = 4;

Terms demanding(Terms terms, std::uint8_t protection) {
  terms.protection = protection;
  return terms;
}

TEST(Machines, TheHigherProtectionApplies) {
  for (std::uint8_t client = authenticated; client <= sealed; ++client) {
    for (std::uint8_t server = authenticated; server <= sealed; ++server) {
      ClientSide side = offering({"a"});
      side.terms.protection = client;
      int paths = 0;
      Choices choices;
      do {
        ConnectedMachines peers(side, {.terms = demanding(server_terms(), server), .transports = {"a"}}, choices);
        peers.run();
        const std::string carrier = check(peers, {"a"}, {"a"});
        const std::uint8_t applies = std::max(client, server);
        EXPECT_EQ(peers.client.agreed().protection, applies);
        const std::size_t taken = carrier.empty() || applies == authenticated ? 0 : protection_bytes;
        EXPECT_EQ(peers.client.agreed().send_bytes_max, 4000 - wire::MessagePrefix::bytes - taken);
        paths += carrier.empty() ? 0 : 1;
      } while (choices.advance());
      EXPECT_EQ(paths, 1);
    }
  }
}

TEST(Machines, NoPathWithoutAProtectionThatBothKnow) {
  const auto declined_by_server = [](std::uint8_t protection, std::size_t message_bytes_max, std::string_view why) {
    FirstHello hello = first_hello();
    hello.terms.protection = protection;
    hello.terms.message_bytes_max = message_bytes_max;
    ServerMachine server({.terms = demanding(server_terms(), authenticated), .transports = {"a"}});
    const Action action = server.on_message(hello);
    ASSERT_TRUE(std::holds_alternative<OpenStream>(action)) << why;
    const auto& last = std::get<SelectionHello>(*std::get<OpenStream>(action).last);
    ASSERT_EQ(last.declined.size(), 2U);
    EXPECT_NE(as_text(last.declined[0].bytes).find(why), std::string_view::npos);
    EXPECT_EQ(last.terms.protection, protection == sealed ? sealed : authenticated);
    EXPECT_EQ(server.failures(), 0U);
  };
  declined_by_server(none, 4000, "the client does not prove");
  declined_by_server(unknown, 4000, "that this server does not know");
  declined_by_server(sealed, 111, "less than 112 bytes");

  const auto declined_by_client = [](std::uint8_t protection, std::size_t message_bytes_max, std::string_view why) {
    ClientSide side = offering({"a"});
    side.terms.protection = 2;
    SelectionHello hello = selection_of("a");
    hello.terms.protection = protection;
    hello.terms.message_bytes_max = message_bytes_max;
    ClientMachine client(side);
    const Action action = client.on_message(hello);
    ASSERT_TRUE(std::holds_alternative<SendHello>(action)) << why;
    const auto& answered = std::get<AnswerHello>(std::get<SendHello>(action).message);
    ASSERT_FALSE(answered.half);
    EXPECT_NE(answered.half.error().find(why), std::string::npos) << answered.half.error();
    expect_violation(client.on_message(ReadyHello()), "not agreed on");
  };
  declined_by_client(none, 4000, "the server does not prove");
  declined_by_client(unknown, 4000, "that is not known here");
  declined_by_client(authenticated, 4000, "offers authenticated messages");
  declined_by_client(sealed, 111, "less than 112 bytes");
}

TEST(Machines, TheStreamAloneDeclinesEachOffer) {
  ServerMachine server(
      {.terms = demanding(server_terms(), authenticated), .stream_only = "old TLS", .transports = {"a"}});
  FirstHello hello = first_hello();
  hello.terms.protection = sealed;
  const Action action = server.on_message(hello);
  ASSERT_TRUE(std::holds_alternative<OpenStream>(action));
  const auto& last = std::get<SelectionHello>(*std::get<OpenStream>(action).last);
  EXPECT_EQ(last.declined, (std::vector<wire::NamedBytes>{{"a", octets("old TLS")}, {"b", octets("old TLS")}}));
}

// ---- Terms and messages ----

TEST(Settle, TakesTheLowerLimitAndTheOthersGrant) {
  const Terms ours{.checksum = true, .message_bytes_max = 1000, .calls_max = 7, .stream_window_bytes = 11};
  const Terms theirs{.memory = true, .message_bytes_max = 800, .calls_max = 9, .stream_window_bytes = 13};
  EXPECT_EQ(settle(ours, theirs), (Agreement{.peer_memory = true,
                                             .send_bytes_max = 792,
                                             .receive_bytes_max = 992,
                                             .calls_max = 7,
                                             .peer_window_bytes = 13,
                                             .own_window_bytes = 11}));
  EXPECT_FALSE(settle(theirs, ours).checksum);
  EXPECT_EQ(settle(theirs, ours).send_bytes_max, 792U);
  EXPECT_EQ(settle(theirs, ours).receive_bytes_max, 792U);
}

TEST(Settle, AllowsTheShortestMessagesOfAProtectedPath) {
  const Terms shortest{.message_bytes_max = protected_message_bytes_min, .protection = sealed};
  EXPECT_EQ(path_refusal_of_server(shortest, shortest), "");
  EXPECT_EQ(path_refusal_of_client(shortest, shortest), "");
}

TEST(HelloMessages, ARefusalIsReadBeforeReady) {
  wire::Hello hello = to_hello(RefusalHello{Error::of_connection(Initiator::peer, ErrorCode::overloaded, "full")});
  hello.ready = true;
  EXPECT_TRUE(std::holds_alternative<RefusalHello>(server_message_of(hello)));
}

TEST(HelloMessages, GoThereAndBack) {
  const auto back = [](const HelloMessage& message) { return server_message_of(to_hello(message)); };
  SelectionHello selected = selection_of("a");
  selected.declined = {{"b", octets("why")}};
  EXPECT_EQ(back(selected), HelloMessage(selected));
  EXPECT_EQ(back(ReadyHello()), HelloMessage(ReadyHello()));
  const Error full = Error::of_connection(Initiator::peer, ErrorCode::overloaded, "full");
  EXPECT_EQ(back(RefusalHello{full}), HelloMessage(RefusalHello{full}));
  FirstHello hello = first_hello();
  hello.terms.calls_max = Terms().calls_max;  // Not sent.
  EXPECT_EQ(first_of(to_hello(hello)), hello);
  EXPECT_EQ(to_hello(first_hello()).calls_max, 0U);
  for (const AnswerHello& one : {AnswerHello{octets("half")}, AnswerHello{}, AnswerHello{std::unexpected("no")}}) {
    EXPECT_EQ(answer_of(to_hello(one)), one);
  }
  EXPECT_FALSE(answer_of(to_hello(first_hello())).half);
  Terms large{.message_bytes_max = std::size_t{1} << 40};
  EXPECT_EQ(to_hello(FirstHello{.terms = large}).message_bytes_max, UINT32_MAX);
}

}  // namespace
}  // namespace hawser::negotiate
