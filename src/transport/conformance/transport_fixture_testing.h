#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "transport/conformance/transport_testing.h"

namespace hawser::transport {

// A connected pair over the transport of the test case, and messages to compare. The tests are in the files that
// transport_suite_testing.h includes.
class TransportSuite : public testing::TestWithParam<TransportCase> {
 protected:
  void SetUp() override {
    if (!GetParam().absent.empty()) GTEST_SKIP() << GetParam().absent;
    if (GetParam().loop.poller == PollerKind::io_uring && Loop(GetParam().loop).poller().name() != "io_uring") {
      GTEST_SKIP() << "this kernel has no io_uring that will do";
    }
    make_pair();
  }
  void make_pair(MessageLimits limits = {TransportPair::message_bytes_max, TransportPair::message_bytes_max}) {
    pair = std::make_unique<TransportPair>(GetParam(), limits);
    ASSERT_TRUE(pair->establish());
  }
  // Returns the number of repetitions: `few` on a slow transport, where it must still be enough for the test's purpose.
  // Sanitizers make each step several times slower, and find in few what they find in many.
#ifdef HAWSER_SANITIZED
  static std::size_t many(std::size_t, std::size_t few) { return few; }
#else
  static std::size_t many(std::size_t count, std::size_t few) { return GetParam().slow ? few : count; }
#endif
  TransportSide& client() { return pair->client; }
  TransportSide& server() { return pair->server; }

  // Returns the sizes of payloads to test: each limit and the sizes around it.
  static std::vector<std::size_t> sizes() {
    std::set<std::size_t> all = {0, 1, 7, 8, 63, 64, 1000, 4096, 65'537, 1U << 20, (3U << 20) + 1};
    for (const std::size_t limit : GetParam().limits) {
      if (limit > TransportPair::message_bytes_max - 1024) continue;
      all.insert({limit, limit + 1});
      if (limit != 0) all.insert(limit - 1);
    }
    return {all.begin(), all.end()};
  }

  // Cuts `text` into `count` pieces, some of them empty.
  static std::vector<ConstBuffer> pieces_of(std::string_view text, std::size_t count, std::size_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::size_t> cuts = {0, text.size()};
    while (cuts.size() < count + 1) cuts.push_back(random() % (text.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<ConstBuffer> pieces;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      pieces.push_back({as_bytes(text).data() + cuts[i], cuts[i + 1] - cuts[i]});
    }
    return pieces;
  }

  struct Sent {
    std::string head;
    std::string payload;
    TransportCompletion owner;
    bool owned = false;
  };
  using Batch = std::vector<std::unique_ptr<Sent>>;

  static std::unique_ptr<Sent> make_sent(std::size_t head, std::size_t payload, std::size_t seed, bool owned) {
    auto one = std::make_unique<Sent>();
    one->head = test_bytes(head, seed);
    one->payload = test_bytes(payload, seed + 1'000'003);
    one->owned = owned;
    return one;
  }
  static bool send(TransportSide& from, Sent& one, std::size_t pieces = 1, std::size_t seed = 1) {
    return from.send(one.head, pieces_of(one.payload, pieces, seed), one.owned ? &one.owner : nullptr);
  }
  // Waits until all owners are notified. An owner may be notified later than its payload arrives, and must live until
  // then.
  static void until_notified(TransportSide& from, const Batch& batch) {
    EXPECT_TRUE(from.until([&] {
      return std::all_of(batch.begin(), batch.end(),
                         [](const auto& one) { return !one->owned || one->owner.notified != 0; });
    }));
  }
  // Checks that `to` has received exactly the messages of the batch, and that every owner is notified once.
  static void expect_received(TransportSide& from, TransportSide& to, const Batch& batch) {
    ASSERT_TRUE(to.until_received(batch.size()));
    until_notified(from, batch);
    to.on([&] {
      ASSERT_EQ(to.sink.messages.size(), batch.size());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(to.sink.messages[i].head.size(), batch[i]->head.size());
        EXPECT_TRUE(to.sink.messages[i].head == batch[i]->head) << "head of message " << i;
        EXPECT_EQ(to.sink.messages[i].payload.size(), batch[i]->payload.size()) << "message " << i;
        EXPECT_TRUE(to.sink.messages[i].payload == batch[i]->payload) << "payload of message " << i;
        EXPECT_FALSE(to.sink.messages[i].discarded);
      }
    });
    for (const auto& one : batch) EXPECT_EQ(one->owner.notified.load(), one->owned ? 1 : 0);
  }

  // Makes a pair whose server connection is charged to `account`.
  void make_charged_pair(std::size_t budget_bytes) {
    pair = std::make_unique<TransportPair>(GetParam());
    ASSERT_TRUE(pair->establish(false));
    budget.emplace(budget_bytes, budget_bytes);
    account.emplace(&*budget);
    server().on([&] {
      server().sink.account = &*account;
      server().connection->start(server().sink);
    });
    client().on([&] { client().connection->start(client().sink); });
  }

  // Declared before the pair, so that they outlive it.
  std::optional<hawser::detail::ReceiveBudget> budget;
  std::optional<hawser::detail::ReceiveAccount> account;
  std::unique_ptr<TransportPair> pair;
};

}  // namespace hawser::transport
