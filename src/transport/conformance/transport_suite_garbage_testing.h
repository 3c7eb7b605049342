#pragma once

#include <random>
#include <vector>

#include "transport/conformance/transport_fixture_testing.h"

// Tests of peers that send invalid data before there is a connection.
namespace hawser::transport {

// Passes random bytes to `take`, and valid bytes that are changed, truncated or extended.
template <class F>
void try_garbage(const std::vector<std::byte>& truth, std::size_t bytes_max, F take) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 400; ++i) {
    std::vector<std::byte> bytes;
    if (i % 4 == 0) {
      bytes.resize(random() % (bytes_max + 1));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    } else {
      bytes = truth;
      if (i % 4 == 1) bytes.resize(random() % (bytes.size() + 1));
      if (i % 4 == 2) bytes.resize(bytes.size() + 1 + random() % 20, static_cast<std::byte>(random()));
      if (!bytes.empty() && i % 4 == 3) {
        for (std::uint64_t n = 1 + random() % 3; n != 0; --n) {
          bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        }
      }
    }
    take(Bytes(bytes));
  }
}

// Makes a half of a connection and counts it in `refused` if it fails.
template <class Begin>
void expect_refused(TransportSide& side, int& refused, Begin begin) {
  Result<std::unique_ptr<PendingConnection>> pending = side.half(begin);
  if (pending) return side.on([&] { pending->reset(); });
  ++refused;
  EXPECT_FALSE(pending.error().text.empty());
}

TEST_P(TransportSuite, GarbageOffersAreRefused) {
  const std::vector<std::byte> truth = client().on([&] { return client().worker->offer(); });
  EXPECT_LE(truth.size(), transport_offer_bytes_max);
  int refused = 0;
  try_garbage(truth, transport_offer_bytes_max, [&](Bytes offer) {
    expect_refused(server(), refused, [&] { return server().worker->select(offer, pair->limits()); });
  });
  EXPECT_GE(refused, 100) << "random bytes are not an offer";
  EXPECT_TRUE(pair->select().has_value());
}

TEST_P(TransportSuite, GarbageParametersAreRefused) {
  ASSERT_TRUE(pair->select().has_value());
  const std::vector<std::byte> truth = server().on([&] { return pair->server_pending->parameters(); });
  EXPECT_LE(truth.size(), transport_parameters_bytes_max);
  int refused = 0;
  try_garbage(truth, transport_parameters_bytes_max, [&](Bytes parameters) {
    expect_refused(client(), refused, [&] { return client().worker->accept(parameters, pair->limits()); });
  });
  EXPECT_GE(refused, 100) << "random bytes are not parameters";
  ASSERT_TRUE(pair->accept().has_value());
  EXPECT_TRUE(pair->connect().has_value());
}

TEST_P(TransportSuite, GarbageAnswersAreRefused) {
  ASSERT_TRUE(pair->select().has_value());
  ASSERT_TRUE(pair->accept().has_value());
  const std::vector<std::byte> truth = client().on([&] { return pair->client_pending->parameters(); });
  EXPECT_LE(truth.size(), transport_parameters_bytes_max);
  int refused = 0;
  try_garbage(truth, transport_parameters_bytes_max, [&](Bytes parameters) {
    // A pending connection can be connected only once, so each attempt gets a new one. The resources of the previous
    // ones are bounded and may be released a little later.
    Result<void> selected = pair->select();
    for (int i = 0; !selected && selected.error().code == ErrorCode::overloaded && i < 200'000; ++i) {
      server().loop->rest();
      selected = pair->select();
    }
    ASSERT_TRUE(selected.has_value()) << selected.error().describe();
    const Result<void> done = server().connect(*pair->server_pending, parameters);
    if (done) return;
    ++refused;
    EXPECT_FALSE(done.error().text.empty());
  });
  EXPECT_GE(refused, 100) << "random bytes are not parameters";
}

}  // namespace hawser::transport
