#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/rdma.h"
#include "hawser/runtime.h"
#include "hawser/transport/factory.h"
#include "tests/testing.h"
#include "transport/network.h"

// Enabled transports: their names and their number.
namespace hawser::failover {

using namespace testing_tools;

namespace {

// A transport that is never available.
class Nowhere final : public transport::Transport {
 public:
  explicit Nowhere(std::string_view name) : name_(name) {}
  std::string_view name() const noexcept override { return name_; }
  Result<std::shared_ptr<transport::TransportWorker>> attach(Loop&) override {
    return fail(Error::of_transport(ErrorCode::unavailable, "it leads nowhere"));
  }

 private:
  const std::string_view name_;
};

TransportSpec nowhere(std::string_view name, int rank = 100, int option = 0) {
  return transport::make_spec(
      {.name = name, .rank = rank}, option,
      [name](int) -> std::shared_ptr<transport::Transport> { return std::make_shared<Nowhere>(name); });
}

// Returns the results of a server that starts and of a client that connects.
std::vector<Result<void>> outcomes(const TransportOptions& transports) {
  std::vector<Result<void>> all;
  Loop loop({.log = no_log()});
  ServerOptions options;
  options.transports = transports;
  Server server(loop, std::move(options));
  all.push_back(server.start());
  ServerOptions sound;
  sound.transports.enabled.clear();
  Server other(loop, std::move(sound));
  EXPECT_OK(other.start());
  all.push_back(loop.run([](Loop& on, std::string address, TransportOptions with) -> Task<Result<void>> {
    Client client(on, {.transports = std::move(with)});
    auto connected = co_await client.connect(address);
    co_return connected;
  }(loop, other.address(), transports)));
  return all;
}

TEST(Enabled, MoreThanAHelloOffersAreAnError) {
  TransportOptions options{.enabled = {nowhere("a"), nowhere("b"), nowhere("c"), nowhere("d")}};
  for (const Result<void>& outcome : outcomes(options)) EXPECT_OK(outcome);
  options.enable(nowhere("e"));
  for (const Result<void>& outcome : outcomes(options)) {
    EXPECT_ERROR(outcome, limit_exceeded, "5 transports are enabled (a, b, c, d, e), and a HELLO offers at most 4");
  }
  // Only the transports that are used count.
  options.order = {"e", "b", "e"};
  for (const Result<void>& outcome : outcomes(options)) EXPECT_OK(outcome);
}

TEST(Enabled, NamesAreChecked) {
  for (const char* const name : {"", "stream", "Capital", "a b", "seventeen-letters"}) {
    for (const Result<void>& outcome : outcomes({.enabled = {nowhere(name)}})) {
      EXPECT_ERROR(outcome, invalid_argument, "TransportOptions::enabled has a transport named \"" + std::string(name));
    }
  }
  for (const Result<void>& outcome : outcomes({.enabled = {nowhere("a"), shm(), nowhere("a")}})) {
    EXPECT_ERROR(outcome, invalid_argument, "a transport named \"a\" twice");
  }
  for (const Result<void>& outcome : outcomes({.enabled = {nowhere("a")}, .order = {"b"}})) {
    EXPECT_ERROR(outcome, invalid_argument, "\"b\", and there is no such transport: shm, rdma, ucx, a");
  }
}

TEST(Enabled, EnableReplacesAndDisableRemoves) {
  TransportOptions options;
  ASSERT_EQ(options.enabled.size(), 1U);
  EXPECT_EQ(options.enabled[0].name(), "shm");
  options.enable(nowhere("a"));
  const TransportSpec other = nowhere("a", 100, 1);
  options.enable(other);
  ASSERT_EQ(options.enabled.size(), 2U);
  EXPECT_EQ(&options.enabled[1].factory(), &other.factory());
  options.disable("shm");
  options.disable("not there");
  ASSERT_EQ(options.enabled.size(), 1U);
  EXPECT_EQ(options.enabled[0].name(), "a");
}

TEST(Enabled, RanksOrderAndEqualOptionsShare) {
  const auto network = Runtime::process_default()->network();
  const auto all =
      network->transports({.enabled = {nowhere("z"), ucx(), nowhere("first", 1), shm(), rdma(), nowhere("a")}});
  std::vector<std::string_view> names;
  for (const auto& path : all) names.push_back(path->name());
  EXPECT_EQ(names, (std::vector<std::string_view>{"first", "shm", "rdma", "ucx", "z", "a"}));
  const auto again = network->transports({.enabled = {rdma(), shm({.ring_bytes = 64 * 1024})}});
  EXPECT_EQ(again[1], all[2]) << "equal options share one transport";
  EXPECT_NE(again[0], all[1]) << "other options make another transport";
}

TEST(Enabled, ABufferThatNobodyRegistersNamesThem) {
  const Client client({.transports = {.enabled = {shm(), nowhere("a")}}});
  const Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(client, 1);
  ASSERT_TRUE(buffer) << error_of(buffer);
  EXPECT_FALSE(buffer->registered());
  EXPECT_EQ(buffer->why_not(), "no enabled transport registers memory: enabled are shm, a");
}

TEST(Enabled, AFactoryThatMakesAnotherNameIsAnError) {
  const TransportSpec wrong = transport::make_spec(
      {.name = "right"}, 0,
      [](int) -> std::shared_ptr<transport::Transport> { return std::make_shared<Nowhere>("wrong"); });
  EXPECT_THROW(static_cast<void>(Runtime::process_default()->network()->transports({.enabled = {wrong}})),
               std::logic_error);
}

}  // namespace
inline std::string_view echo_within_host(std::string_view text) { return text; }

// The default of users who set no option, on a machine where shared memory works and nothing else is enabled.
TEST(Automatic, WithinAHostItIsSharedMemory) {
  Loop loop({.log = no_log()});
  const auto network = Runtime::process_default()->network();
  for (const auto& path : network->transports({})) {
    if (const auto end = path->attach(loop); !end) GTEST_SKIP() << end.error().text;
  }
  Server server(loop, ServerOptions{.loop = {.log = no_log()}});
  server.register_handler<echo_within_host>();
  ASSERT_TRUE(server.start());
  loop.run([](Loop& on, std::string address) -> Task<void> {
    Client client(on);
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    EXPECT_EQ(client.transport(), "shm");
    EXPECT_TRUE(client.fallback_reasons().empty());
    auto reply = co_await client.call<echo_within_host>("hi");
    EXPECT_OK(reply);

    ClientOptions stream;
    stream.transports.disable("shm");
    Client other(on, stream);
    auto also = co_await other.connect(address);
    REQUIRE_OK(also);
    EXPECT_EQ(other.transport(), "tcp");

    ClientOptions requiring;
    requiring.transports.enable(rdma({.device = "no_such_device"}));
    requiring.transports.required = "rdma";
    Client third(on, requiring);
    auto refused = co_await third.connect(address);
    EXPECT_ERROR(refused, unavailable, "TransportOptions::required is rdma, which cannot be used: ");
  }(loop, server.address()));
}

}  // namespace hawser::failover
