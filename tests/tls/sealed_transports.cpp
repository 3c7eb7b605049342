// Runs the suite of transports over connections whose messages are signed or sealed.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "security/tls/path_keys.h"
#include "transport/common/framed_connection.h"
#include "transport/common/sealed_connection.h"
#include "transport/conformance/transport_suite_testing.h"
#include "transport/shm/shm_transport.h"

namespace hawser::transport {
namespace {

struct Sealing {
  bool encrypts;
  security::tls::PathAlgorithm algorithm;
};

// Both sides change their keys often.
std::unique_ptr<Connection> seal(std::unique_ptr<Connection> connection, const Sealing& sealing,
                                 security::tls::Side side) {
  const security::tls::Secret exported;
  const PathTerms terms{.transport = "shm", .offer = {}, .selection = {}, .answer = {}};
  auto cipher = security::tls::make_path_cipher(sealing.algorithm, sealing.encrypts, exported,
                                                security::tls::hash_of(terms), side, nullptr);
  EXPECT_NE(cipher, nullptr);
  return std::make_unique<SealedConnection>(std::move(connection), std::move(cipher), std::uint64_t{1} << 20, 20);
}

class SealedPending final : public PendingConnection {
 public:
  SealedPending(std::unique_ptr<PendingConnection> of, Sealing with, security::tls::Side side)
      : inner_(std::move(of)), sealing_(with), side_(side) {}
  std::vector<std::byte> parameters() const override { return inner_->parameters(); }
  void when_ready(Ready ready) override { inner_->when_ready(std::move(ready)); }
  void connect(Bytes client, Ready ready) override { inner_->connect(client, std::move(ready)); }
  std::unique_ptr<Connection> open(std::unique_ptr<Stream> stream) override {
    return seal(inner_->open(std::move(stream)), sealing_, side_);
  }

 private:
  const std::unique_ptr<PendingConnection> inner_;
  const Sealing sealing_;
  const security::tls::Side side_;
};

class SealedWorker final : public TransportWorker {
 public:
  SealedWorker(std::shared_ptr<TransportWorker> of, Sealing with) : inner_(std::move(of)), sealing_(with) {}
  std::vector<std::byte> offer() override { return inner_->offer(); }
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override {
    return made(inner_->select(offer, limits), security::tls::Side::server);
  }
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override {
    return made(inner_->accept(server, limits), security::tls::Side::client);
  }

 private:
  Result<std::unique_ptr<PendingConnection>> made(Result<std::unique_ptr<PendingConnection>> pending,
                                                  security::tls::Side side) {
    if (!pending) return pending;
    return std::make_unique<SealedPending>(std::move(*pending), sealing_, side);
  }
  const std::shared_ptr<TransportWorker> inner_;
  const Sealing sealing_;
};

class SealedTransport final : public Transport {
 public:
  SealedTransport(std::shared_ptr<Transport> of, Sealing with) : inner_(std::move(of)), sealing_(with) {}
  std::string_view name() const noexcept override { return inner_->name(); }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    auto worker = inner_->attach(loop);
    if (!worker) return worker;
    return std::make_shared<SealedWorker>(std::move(*worker), sealing_);
  }

 private:
  const std::shared_ptr<Transport> inner_;
  const Sealing sealing_;
};

std::vector<TransportCase> sealed_cases() {
  constexpr Sealing is_signed{false, security::tls::PathAlgorithm::aes_256_gcm};
  constexpr Sealing is_sealed{true, security::tls::PathAlgorithm::aes_256_gcm};
  constexpr Sealing with_chacha{true, security::tls::PathAlgorithm::chacha20_poly1305};
  std::vector<TransportCase> cases;
  const auto add = [&](const std::string& name, Sealing sealing, std::size_t how, const ShmOptions& options) {
    auto make = [options, sealing]() -> std::shared_ptr<Transport> {
      return std::make_shared<SealedTransport>(make_shm_transport(options, OwnProcess::read), sealing);
    };
    TransportCase one = transport_cases(
        name, make, {4096 - 64, 4096, 8 * 1024, options.eager_bytes, options.ring_bytes, options.slab_bytes})[how];
    one.set_aside_bytes = options.slab_bytes;
    cases.push_back(std::move(one));
  };
  const ShmOptions usual{.slab_bytes = 4 << 20, .direct_read_bytes_min = 1 << 20};
  const ShmOptions small{
      .ring_bytes = 64 * 1024, .slab_bytes = 512 * 1024, .eager_bytes = 1000, .direct_read_bytes_min = 300'000};
  add("signed", is_signed, 0, usual);
  add("sealed", is_sealed, 3, usual);
  add("sealed_small", is_sealed, 2, small);
  add("chacha", with_chacha, 0, small);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Sealed, TransportSuite, testing::ValuesIn(sealed_cases()), name_of_transport_case);

}  // namespace
}  // namespace hawser::transport
