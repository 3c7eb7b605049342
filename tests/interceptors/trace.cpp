#include "hawser/trace.h"

#include <gtest/gtest.h>

#include <string>

#include "hawser/interceptor.h"
#include "tests/testing.h"

namespace hawser::trace_test {

using namespace testing_tools;

constexpr std::string_view sample = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

std::string which_trace(Context& context) {
  const auto trace = trace_of(context.metadata());
  return trace ? trace->traceparent() + " " + trace->state : "none";
}

TEST(Trace, ParsesWhatTheSpecificationAllows) {
  const auto trace = TraceContext::parse(sample, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->trace_id_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(trace->span_id_text(), "00f067aa0ba902b7");
  EXPECT_TRUE(trace->sampled);
  EXPECT_EQ(trace->state, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
  EXPECT_EQ(trace->traceparent(), sample);
  std::string other(sample);
  other.back() = '0';
  EXPECT_FALSE(TraceContext::parse(other)->sampled);
  other.back() = '3';  // Other flags are not those of this version.
  EXPECT_EQ(TraceContext::parse(other)->traceparent(), sample);
  other.replace(0, 2, "01");
  EXPECT_TRUE(TraceContext::parse(other));
  EXPECT_TRUE(TraceContext::parse(other + "-more"));
}

TEST(Trace, RefusesTheRest) {
  const auto with = [](std::size_t at, std::string_view text) {
    std::string changed(sample);
    changed.replace(at, text.size(), text);
    return TraceContext::parse(changed);
  };
  for (std::size_t size = 0; size < sample.size(); ++size) EXPECT_FALSE(TraceContext::parse(sample.substr(0, size)));
  EXPECT_FALSE(TraceContext::parse(std::string(sample) + "-more"));
  EXPECT_FALSE(with(0, "01" + std::string(sample.substr(2)) + "x"));
  EXPECT_FALSE(with(0, "ff"));
  EXPECT_FALSE(with(3, std::string(32, '0')));
  EXPECT_FALSE(with(36, std::string(16, '0')));
  EXPECT_FALSE(with(3, "4BF9"));
  EXPECT_FALSE(with(53, "0x"));
  for (const std::size_t dash : {2U, 35U, 52U}) EXPECT_FALSE(with(dash, "0"));
}

TEST(Trace, DropsAStateThatIsNoState) {
  const auto state_of = [](const std::string& state) { return TraceContext::parse(sample, state)->state; };
  EXPECT_EQ(state_of("a=1"), "a=1");
  EXPECT_EQ(state_of("a=1\nb=2"), "");
  EXPECT_EQ(state_of("text"), "");
  EXPECT_EQ(state_of("a=" + std::string(511, 'x')), "");
  std::string members = "a=1";
  for (int i = 1; i < 32; ++i) members += ",b=2";
  EXPECT_EQ(state_of(members), members);
  EXPECT_EQ(state_of(members + ",c=3"), "");
}

TEST(Trace, ChildrenStayInTheirTrace) {
  const TraceContext root = TraceContext::begin(true);
  const TraceContext child = root.child();
  EXPECT_EQ(child.trace_id, root.trace_id);
  EXPECT_NE(child.span_id, root.span_id);
  EXPECT_TRUE(child.sampled);
  EXPECT_NE(TraceContext::begin(true).trace_id, root.trace_id);
  EXPECT_EQ(TraceContext::parse(child.traceparent()), child);
}

TEST(Trace, TravelsWithCalls) {
  Loop loop;
  loop.run([](Loop& here) -> Task<void> {
    Server server(here, {});
    server.register_handler<which_trace>();
    EXPECT_OK(server.start());
    Client client(here);
    auto connected = co_await client.connect(server.address());
    REQUIRE_OK(connected);
    auto none = co_await client.call<which_trace>();
    EXPECT_EQ(none, "none");
    CallOptions options{.metadata = {{"traceparent", "stale"}, {"other", "stays"}}};
    TraceContext trace = *TraceContext::parse(sample, "a=1");
    trace.add_to(options);
    EXPECT_EQ(options.metadata.size(), 3U);
    auto traced = co_await client.call<which_trace>(options);
    EXPECT_EQ(traced, std::string(sample) + " a=1");
    options.metadata.emplace_back("traceparent", sample);
    auto twice = co_await client.call<which_trace>(options);
    EXPECT_EQ(twice, "none");
    const CallOptions baidu{.metadata = {{"x-bd-trace-id", "255"}, {"x-bd-span-id", "-1"}}};
    auto number = co_await client.call<which_trace>(baidu);
    EXPECT_EQ(number, "00-000000000000000000000000000000ff-ffffffffffffffff-01 ");
    const CallOptions wrong{.metadata = {{"x-bd-trace-id", "255"}, {"x-bd-span-id", "1x"}}};
    auto no_number = co_await client.call<which_trace>(wrong);
    EXPECT_EQ(no_number, "none");
  }(loop));
}

}  // namespace hawser::trace_test
