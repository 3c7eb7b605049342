#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::transport {
namespace {

// Returns the parameters of a server whose worker is `silent`.
std::vector<std::byte> parameters_of(UcxWorker& silent) {
  return UcxParameters{.peer = {.token = 1, .window_bytes = 1 << 20, .rendezvous_bytes_min = 1 << 15},
                       .error_mode = silent.options().error_mode,
                       .address = {silent.address().begin(), silent.address().end()}}
      .store();
}

// Peers that never answer UCX must not make the process grow without bound.
TEST(UcxTransport, WorkersWithUnfinishedWireUpsAreBounded) {
  const UcxOptions options{.tls = "tcp", .error_mode = UcxErrorMode::none, .wire_up = UcxWireUp::worker_address};
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text;
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const std::shared_ptr<UcxWorker> silent = *UcxWorker::make(*context, loop);  // Never polled.
  const auto end = UcxTransportWorker::make(*context, loop);
  ASSERT_TRUE(end.has_value());
  const std::vector<std::byte> server = parameters_of(*silent);
  constexpr std::size_t enough = (UcxTransportWorker::old_workers_max + 2) * (UcxTransportWorker::spent_max + 2);
  std::optional<Error> refused;
  for (std::size_t i = 0; i < enough && !refused; ++i) {
    const auto pending = (*end)->accept(server, {1 << 20, 1 << 20});  // Its connection ends at once.
    if (!pending) refused = pending.error();
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::overloaded) << refused->describe();
  EXPECT_EQ(refused->scope, ErrorScope::transport);
}

struct Nobody final : UcxTarget {
  void arrived(const ActiveMessage&) override {}
  void connected(std::unique_ptr<UcxEndpoint>) override {}
  void ended(UcxOperation& operation) override { operation.core->recycle(operation); }
  void process() override {}
};

// Clients that are selected and never send a message over UCX take half_open_max places. Further ones wait, and are
// declined after UcxHalfOpen::wait_max.
TEST(UcxTransport, HalfOpenClientsAreBoundedAndOthersWait) {
  const UcxOptions options{.tls = "tcp", .half_open_max = 3};
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text;
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const auto server = UcxTransportWorker::make(*context, loop);
  ASSERT_TRUE(server.has_value());
  const std::vector<std::byte> offer = (*server)->offer();
  std::vector<std::unique_ptr<PendingConnection>> pendings;
  for (int i = 0; i < 3; ++i) pendings.push_back(*(*server)->select(offer, {1 << 20, 1 << 20}));
  EXPECT_EQ((*server)->half_open().size(), 3U);
  loop.run([](Loop& on, UcxTransportWorker& end, const std::vector<std::byte>& from,
              std::vector<std::unique_ptr<PendingConnection>>& places) -> Task<void> {
    const auto outcome_of = [&](PendingConnection& pending, std::optional<Result<void>>& outcome) {
      pending.when_ready([&outcome](const Result<void>& how) { outcome.emplace(how); });
      EXPECT_FALSE(outcome.has_value()) << "no place is free";
    };
    const auto wait_for = [&](const std::optional<Result<void>>& outcome) -> Task<void> {
      while (!outcome) co_await on.sleep(std::chrono::milliseconds(1));
    };
    std::optional<Result<void>> first;
    std::optional<Result<void>> second;
    auto waits = *end.select(from, {1 << 20, 1 << 20});
    auto declined = *end.select(from, {1 << 20, 1 << 20});
    outcome_of(*waits, first);
    outcome_of(*declined, second);
    EXPECT_EQ(end.half_open().waiting(), 2U);
    places.pop_back();
    co_await wait_for(first);
    EXPECT_TRUE(first->has_value());
    EXPECT_FALSE(waits->parameters().empty());
    co_await wait_for(second);
    EXPECT_FALSE(second->has_value());
    if (*second) co_return;
    EXPECT_EQ(second->error().code, ErrorCode::overloaded);
    EXPECT_NE(second->error().text.find("half_open_max"), std::string::npos) << second->error().text;
    EXPECT_EQ(end.half_open().waiting(), 0U);
    // Nobody waits again until a place has become free.
    std::optional<Result<void>> third;
    auto late = *end.select(from, {1 << 20, 1 << 20});
    late->when_ready([&third](const Result<void>& how) { third.emplace(how); });
    EXPECT_TRUE(third.has_value() && !third->has_value());
    places.pop_back();
    EXPECT_TRUE(end.select(from, {1 << 20, 1 << 20}).has_value());
  }(loop, **server, offer, pendings));
}

// UCX reports an error at each arm. The loop must not poll without sleep for all that time.
TEST(UcxTransport, AWorkerThatIsNeverArmedLetsTheLoopSleep) {
  const UcxOptions options{.tls = "tcp"};
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text;
  static int arms;
  static std::stop_source enough;
  constexpr int rests = 5;  // Its timer alone wakes the loop for each of them.
  arms = 0;
  enough = std::stop_source();
  static UcpLibrary failing;  // Abandoned workers may outlive the test.
  failing = **UcpLibrary::load();
  failing.worker_arm = [](ucp_worker_h) {
    if (++arms == static_cast<int>(UcxWorker::arms_in_vain_max) + rests) enough.request_stop();
    return UCS_ERR_IO_ERROR;
  };
  Loop loop({.wait = Wait::event, .log = no_log()});
  const auto context = UcxContext::make(failing, options, true);
  ASSERT_TRUE(context.has_value());
  const auto worker = UcxWorker::make(*context, loop);
  ASSERT_TRUE(worker.has_value());
  Nobody nobody;
  const auto token = (*worker)->enter(nobody);
  ASSERT_TRUE(token.has_value());
  static constexpr auto patience = std::chrono::seconds(60);
  const Result<void> slept =
      loop.run([](Loop& on) -> Task<Result<void>> { co_return co_await on.sleep(patience, enough.get_token()); }(loop));
  EXPECT_FALSE(slept.has_value()) << "the worker's timer did not wake the loop: " << arms;
  EXPECT_LE(arms, static_cast<int>(UcxWorker::arms_in_vain_max) + rests + 1);
  (*worker)->leave(*token);
}

// With UcxErrorMode::peer they end: by wire_up_timeout if a connection ends before the peer has answered.
TEST(UcxTransport, UnansweredWireUpsEndInErrorModePeer) {
  const UcxOptions options{
      .tls = "tcp", .error_mode = UcxErrorMode::peer, .wire_up_timeout = std::chrono::milliseconds(100)};
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text;
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const std::shared_ptr<UcxWorker> silent = *UcxWorker::make(*context, loop);  // Never polled.
  const auto worker = UcxWorker::make(*context, loop);
  ASSERT_TRUE(worker.has_value());
  Nobody nobody;
  for (int i = 0; i < 8; ++i) {
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    to.address = reinterpret_cast<const ucp_address_t*>(silent->address().data());
    Result<std::unique_ptr<UcxEndpoint>> endpoint = (*worker)->core().connect(to, 0);
    ASSERT_TRUE(endpoint.has_value()) << endpoint.error().describe();
    UcxCore& core = (*worker)->core();
    UcxOperation& hello = *core.acquire_operation(nobody, UcxOperation::Kind::send);
    if (core.send(**endpoint, hello, nullptr, 0, 0) != UCS_INPROGRESS) core.recycle(hello);
    (*worker)->close(std::move(*endpoint), UcxClose::flush);
  }
  EXPECT_EQ((*worker)->core().closing(), 8U);
  loop.run([](Loop& on, UcxWorker& closes) -> Task<void> {
    const Time end = on.after(std::chrono::seconds(30));
    while (closes.core().closing() != 0 && on.now() < end) {
      closes.poll();
      co_await on.sleep(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(closes.core().closing(), 0U);
  }(loop, **worker));
}

// A peer that is killed while it writes into the queue of UCX's shared memory stops the queue for all other peers.
TEST(UcxTransport, ErrorModePeerHasNoSharedMemoryOfUcx) {
  const auto tls = [](const std::string& list, UcxErrorMode mode) -> std::string {
    for (const auto& [name, value] : ucx_settings({.tls = list, .error_mode = mode})) {
      if (name == "TLS") return value;
    }
    return {};
  };
  EXPECT_EQ(tls("posix,cma,self", UcxErrorMode::none), "posix,cma,self");
  constexpr UcxErrorMode peer = UcxErrorMode::peer;
  EXPECT_EQ(tls("tcp,posix,self", peer), "tcp,self");
  EXPECT_EQ(tls("shm,rc_verbs,\\sysv,mm:aux,sm", peer), "rc_verbs");
  EXPECT_EQ(tls("^tcp", peer), "^tcp,mm");
  EXPECT_EQ(tls("all", peer), "^mm");
  const Result<void> nothing = check({.tls = "shm", .error_mode = peer});
  ASSERT_FALSE(nothing.has_value());
  EXPECT_NE(nothing.error().text.find("UcxErrorMode::none"), std::string::npos) << nothing.error().text;

  if (const auto there = ucx_report({.tls = "tcp"}); !there) GTEST_SKIP() << there.error().text;
  const Result<UcxReport> report = ucx_report({.error_mode = peer});
  ASSERT_TRUE(report.has_value()) << report.error().describe();
  const auto has = [&](const std::string& name) {
    return std::any_of(report->transports.begin(), report->transports.end(),
                       [&](const UcxReport::Transport& one) { return one.name == name; });
  };
  EXPECT_TRUE(has("tcp"));
  EXPECT_FALSE(has("posix"));
  EXPECT_FALSE(has("sysv"));
}

}  // namespace
}  // namespace hawser::transport
