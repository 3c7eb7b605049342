#include "hawser/transport/kept_payload.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "heap/external_block.h"
#include "transport/conformance/transport_testing.h"
#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/core/ucp_library.h"
#include "transport/ucx/ucx_transport.h"

// Payloads of which UCX uses the sender's own block.
namespace hawser::transport {
namespace {

// Functions of libucp that record from where large payloads are sent.
struct Observed {
  static inline const UcpLibrary* real = nullptr;
  static inline std::atomic<const void*> sent_from = nullptr;
  static inline std::atomic<bool> hold = false;  // UCX makes no progress.

  static ucs_status_ptr_t send(ucp_ep_h ep, unsigned id, const void* header, std::size_t header_bytes, const void* data,
                               std::size_t size, const ucp_request_param_t* params) {
    if ((params->flags & UCP_AM_SEND_FLAG_RNDV) != 0) sent_from = data;
    return real->am_send_nbx(ep, id, header, header_bytes, data, size, params);
  }
  static unsigned progress(ucp_worker_h worker) { return hold ? 0 : real->worker_progress(worker); }
};

class ObservedTransport final : public Transport {
 public:
  explicit ObservedTransport(const UcpLibrary& ucp) : ucp_(ucp) {}
  std::string_view name() const noexcept override { return "ucx"; }
  Result<std::shared_ptr<TransportWorker>> attach(Loop& loop) override {
    Result<std::shared_ptr<UcxContext>> context = UcxContext::make(
        ucp_, {.tls = "tcp", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address}, true);
    if (!context) return fail(context.error());
    return UcxTransportWorker::make(std::move(*context), loop);
  }

 private:
  const UcpLibrary& ucp_;
};

// Memory that counts its users. The owner of the payload is notified once, and drops its reference then.
struct CountedBytes final : ExternalBlock {
  explicit CountedBytes(std::string of)
      : ExternalBlock([](ExternalBlock& block) noexcept { static_cast<CountedBytes&>(block).returned = true; }),
        bytes(std::move(of)) {}
  std::string bytes;
  std::atomic<bool> returned = false;
};
struct KeptBytes final : KeptPayload {
  explicit KeptBytes(CountedBytes& of) : counted(of) {}
  void on_send_complete() noexcept override {
    ++notified;
    counted.release();
  }
  Block& block() noexcept override { return counted; }
  CountedBytes& counted;
  std::atomic<int> notified = 0;
};

class UcxKeptPayload : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto there =
            ucx_report({.tls = "tcp", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address});
        !there)
      GTEST_SKIP() << there.error().text;
    Observed::real = *UcpLibrary::load();
    Observed::sent_from = nullptr;
    Observed::hold = false;
    static UcpLibrary observed;  // Abandoned workers may outlive the test.
    observed = *Observed::real;
    observed.am_send_nbx = &Observed::send;
    observed.worker_progress = &Observed::progress;
    pair = std::make_unique<TransportPair>(
        transport_cases("ucx", [] { return std::make_shared<ObservedTransport>(observed); }, {})[2]);
    ASSERT_TRUE(pair->establish());
  }
  void TearDown() override { Observed::hold = false; }

  std::unique_ptr<TransportPair> pair;
};

TEST_F(UcxKeptPayload, IsSentFromItsBlock) {
  CountedBytes counted(test_bytes(200'000, 1));
  KeptBytes kept(counted);
  pair->client.on([&] { ASSERT_TRUE(pair->client.send("head", counted.bytes, &kept)); });
  ASSERT_TRUE(pair->server.until_received(1));
  EXPECT_TRUE(pair->client.until([&] { return counted.returned.load(); }));
  EXPECT_EQ(kept.notified.load(), 1);
  EXPECT_EQ(Observed::sent_from.load(), counted.bytes.data());
  pair->server.on([&] { EXPECT_TRUE(pair->server.sink.messages[0].payload == counted.bytes); });
  // Loaned memory can be taken back at any time, so it is copied.
  TransportCompletion loan;
  pair->client.on([&] { ASSERT_TRUE(pair->client.send("head", counted.bytes, &loan)); });
  ASSERT_TRUE(pair->server.until_received(2));
  EXPECT_TRUE(pair->client.until([&] { return loan.notified.load() == 1; }));
  EXPECT_NE(Observed::sent_from.load(), counted.bytes.data());
}

// The end of the connection notifies the owner. UCX may use the block until it has completed.
TEST_F(UcxKeptPayload, StaysUntilUcxHasCompleted) {
  CountedBytes counted(test_bytes(3'000'000, 2));
  KeptBytes kept(counted);
  // The first message opens the window, so that the payload is handed over at once.
  pair->client.on([&] { ASSERT_TRUE(pair->client.send("first")); });
  ASSERT_TRUE(pair->server.until_received(1));
  Observed::hold = true;
  pair->client.on([&] {
    ASSERT_TRUE(pair->client.send("head", counted.bytes, &kept));
    pair->client.connection->flush();
    EXPECT_EQ(Observed::sent_from.load(), counted.bytes.data());
    pair->client.connection->abort();
    pair->client.connection.reset();
  });
  EXPECT_EQ(kept.notified.load(), 1);
  EXPECT_FALSE(counted.returned.load()) << "UCX may still read the memory";
  Observed::hold = false;
  EXPECT_TRUE(pair->client.until([&] { return counted.returned.load(); }));
}

}  // namespace
}  // namespace hawser::transport
