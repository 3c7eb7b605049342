#include "transport/shm/shm_transport.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "transport/conformance/transport_suite_testing.h"
#include "transport/shm/handshake.h"

namespace hawser::transport {
namespace {

std::vector<TransportCase> cases_of(const std::string& name, const ShmOptions& options) {
  const std::size_t region = options.slab_bytes / 256;
  std::vector<std::size_t> limits = {options.eager_bytes, options.ring_bytes / 4, options.ring_bytes,
                                     options.slab_bytes, region};
  if (options.direct_read_bytes_min != SIZE_MAX) limits.push_back(options.direct_read_bytes_min);
  std::vector<TransportCase> cases =
      transport_cases(name, [options] { return make_shm_transport(options, OwnProcess::read); }, limits);
  for (TransportCase& one : cases) one.set_aside_bytes = options.slab_bytes;
  return cases;
}

std::vector<TransportCase> shm_cases() {
  std::vector<TransportCase> cases;
  const auto add = [&](const std::string& name, const ShmOptions& options) {
    std::vector<TransportCase> more = cases_of(name, options);
    std::move(more.begin(), more.end(), std::back_inserter(cases));
  };
  // Smaller than by default, so that payloads of moderate size take each way.
  add("shm", {.slab_bytes = 4 << 20, .direct_read_bytes_min = 1 << 20});
  add("shm_copies", {.slab_bytes = 4 << 20, .direct_read_bytes_min = SIZE_MAX});
  // Small sizes, so that every resource is sometimes used up.
  add("shm_small",
      {.ring_bytes = 64 * 1024, .slab_bytes = 512 * 1024, .eager_bytes = 1000, .direct_read_bytes_min = 300'000});
  add("shm_no_slab", {.ring_bytes = 64 * 1024, .slab_bytes = 0, .eager_bytes = 0, .direct_read_bytes_min = SIZE_MAX});
  add("shm_reads", {.slab_bytes = 0, .direct_read_bytes_min = 8 * 1024 + 1});
  return cases;
}

// Selects from each four that transport_cases() returned. Under a sanitizer, which slows everything down: one loop, and
// two loops that alternately spin and sleep. Otherwise all.
std::vector<TransportCase> affordable(std::vector<TransportCase> cases) {
#ifdef HAWSER_SANITIZED
  std::vector<TransportCase> kept;
  for (std::size_t i = 0; i + 3 < cases.size(); i += 4) {
    kept.push_back(std::move(cases[i + 1]));
    kept.push_back(std::move(cases[i + 2 + i / 4 % 2]));
  }
  return kept;
#else
  return cases;
#endif
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::ValuesIn(affordable(shm_cases())), name_of_transport_case);

// The third case has two loops. The receiver alone differs, so that the other cases would find nothing more.
std::vector<TransportCase> copy_received_case() {
  return {cases_of("shm_copy_received",
                   {.slab_bytes = 4 << 20, .direct_read_bytes_min = 1 << 20, .copy_received = true})[2]};
}
INSTANTIATE_TEST_SUITE_P(ShmCopyReceived, TransportSuite, testing::ValuesIn(copy_received_case()),
                         name_of_transport_case);

std::string refusal(const ShmOptions& options) {
  Loop loop({.log = no_log()});
  const Result<std::shared_ptr<TransportWorker>> worker = make_shm_transport(options)->attach(loop);
  return worker ? std::string() : worker.error().text;
}

TEST(ShmTransport, OptionsOutOfBoundsAreNamed) {
  EXPECT_EQ(refusal({}), "");
  const std::string ring = ", and must be a power of two from 64 KiB to 64 MiB";
  EXPECT_EQ(refusal({.ring_bytes = 32 * 1024}), "ShmOptions::ring_bytes is 32768" + ring);
  EXPECT_EQ(refusal({.ring_bytes = 100'000}), "ShmOptions::ring_bytes is 100000" + ring);
  EXPECT_EQ(refusal({.ring_bytes = 128 << 20}), "ShmOptions::ring_bytes is 134217728" + ring);
  const std::string slab = ", and must be 0 or a power of two from 16 KiB to 1 GiB";
  EXPECT_EQ(refusal({.slab_bytes = 1000}), "ShmOptions::slab_bytes is 1000" + slab);
  EXPECT_EQ(refusal({.slab_bytes = std::size_t{2} << 30}), "ShmOptions::slab_bytes is 2147483648" + slab);
  EXPECT_EQ(refusal({.eager_bytes = 32 * 1024 + 1}),
            "ShmOptions::eager_bytes is 32769, and must be at most an eighth of ring_bytes (262144)");
  EXPECT_EQ(refusal({.direct_read_bytes_min = 8 * 1024}),
            "ShmOptions::direct_read_bytes_min is 8192, and must be more than eager_bytes (8192)");
  EXPECT_EQ(refusal({.early_publish_bytes = 0}),
            "ShmOptions::early_publish_bytes is 0, and must be from 1 to ring_bytes (262144)");
  EXPECT_EQ(refusal({.early_publish_bytes = 1 << 20}),
            "ShmOptions::early_publish_bytes is 1048576, and must be from 1 to ring_bytes (262144)");
  EXPECT_EQ(refusal({.connections_max = 0}), "ShmOptions::connections_max is 0, and must be at least 1");
}

class ShmEnds : public testing::Test {
 protected:
  std::shared_ptr<TransportWorker> attach(const ShmOptions& options) {
    transports.push_back(make_shm_transport(options));
    return *transports.back()->attach(loop);
  }
  Result<std::unique_ptr<PendingConnection>> select(TransportWorker& by, Bytes offer) {
    return finish_half(loop, by.select(offer, limits));
  }
  Result<std::unique_ptr<PendingConnection>> accept(TransportWorker& by, Bytes parameters) {
    return finish_half(loop, by.accept(parameters, limits));
  }
  std::string refusal_of(const shm::ShmOffer& offer) {
    const auto pending = select(*server, shm::encode(offer));
    return pending ? std::string() : pending.error().text;
  }
  Loop loop{{.log = no_log()}};
  const MessageLimits limits{1 << 20, 1 << 20};
  std::vector<std::shared_ptr<Transport>> transports;
  std::shared_ptr<TransportWorker> server = attach({});
};

TEST_F(ShmEnds, WhoIsElsewhereIsTold) {
  const shm::ShmOffer truth = *shm::decode_offer(server->offer());
  EXPECT_EQ(refusal_of(truth), "");
  shm::ShmOffer other = truth;
  other.host.boot[5] ^= std::byte{1};
  EXPECT_NE(refusal_of(other).find("another host"), std::string::npos);
  other = truth;
  other.host.network_inode ^= 1;
  EXPECT_NE(refusal_of(other).find("network namespace"), std::string::npos);
  other = truth;
  other.ring_bytes = 1000;
  EXPECT_NE(refusal_of(other).find("sizes"), std::string::npos);
}

TEST_F(ShmEnds, TheSmallerSizesCount) {
  const auto client = attach({.ring_bytes = 64 * 1024, .slab_bytes = 0, .eager_bytes = 100});
  const auto pending = select(*server, client->offer());
  ASSERT_TRUE(pending.has_value());
  const shm::Selection selection = *shm::decode_selection((*pending)->parameters());
  EXPECT_EQ(selection.ring_bytes, 64U * 1024);
  EXPECT_EQ(selection.slab_bytes, 0U);
  EXPECT_EQ(selection.eager_bytes, 100U);
  EXPECT_TRUE(accept(*client, (*pending)->parameters()).has_value());
  // The server does not obey the offer.
  const auto larger = select(*server, server->offer());
  const auto accepted = accept(*client, (*larger)->parameters());
  ASSERT_FALSE(accepted.has_value());
  EXPECT_NE(accepted.error().text.find("not offered"), std::string::npos);
}

TEST_F(ShmEnds, ConnectionsAreBounded) {
  const auto few = attach({.connections_max = 2});
  auto one = select(*few, few->offer());
  auto two = select(*few, few->offer());
  ASSERT_TRUE(two.has_value());
  const auto third = select(*few, few->offer());
  ASSERT_FALSE(third.has_value());
  EXPECT_NE(third.error().text.find("connections_max"), std::string::npos);
  one->reset();
  EXPECT_TRUE(select(*few, few->offer()).has_value());
}

// A client that offers and does not connect takes no place from clients that connect.
TEST_F(ShmEnds, OffersDoNotTakeThePlacesOfConnections) {
  const auto client = attach({});
  const auto few = attach({.connections_max = 2});
  const auto connect = [&](std::unique_ptr<PendingConnection>& pending) {
    const auto accepted = accept(*client, pending->parameters());
    EXPECT_TRUE(accepted.has_value());
    return finish_connect(loop, *pending, (*accepted)->parameters());
  };
  auto one = select(*few, client->offer());
  ASSERT_TRUE(one.has_value());
  EXPECT_TRUE(connect(*one).has_value());
  auto two = select(*few, client->offer());
  auto three = select(*few, client->offer());
  ASSERT_TRUE(two.has_value());
  ASSERT_TRUE(three.has_value()) << three.error().text;
  EXPECT_TRUE(connect(*three).has_value());
  const Result<void> refused = connect(*two);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().text.find("connections_max"), std::string::npos);
  EXPECT_FALSE(select(*few, client->offer()).has_value());
  one->reset();
  EXPECT_TRUE(select(*few, client->offer()).has_value());
}

TEST_F(ShmEnds, OneEndForOneLoop) {
  const auto transport = make_shm_transport({});
  const auto one = *transport->attach(loop);
  EXPECT_EQ(*transport->attach(loop), one);
  Loop other({.log = no_log()});
  EXPECT_NE(*transport->attach(other), one);
}

}  // namespace
}  // namespace hawser::transport
