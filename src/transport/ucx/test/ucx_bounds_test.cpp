#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "transport/ucx/connection/ucx_transport_worker.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::transport {
namespace {

// Peers that never answer UCX must not make the process grow without bound.
TEST(UcxTransport, WorkersWithUnfinishedWireUpsAreBounded) {
  const UcxOptions options{.tls = "tcp"};
  if (const auto there = ucx_report(options); !there) GTEST_SKIP() << there.error().text;
  Loop loop({.log = no_log()});
  const auto context = UcxContext::make(options, true);
  ASSERT_TRUE(context.has_value());
  const std::shared_ptr<UcxWorker> silent = *UcxWorker::make(*context, loop);  // Never polled.
  const auto end = UcxTransportWorker::make(*context, loop);
  ASSERT_TRUE(end.has_value());
  const std::vector<std::byte> server = UcxParameters{
      .peer = {.token = 1, .window_bytes = 1 << 20, .rendezvous_bytes_min = 1 << 15},
      .address = {silent->address().begin(),
                  silent->address().end()}}.store();
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

}  // namespace
}  // namespace hawser::transport
