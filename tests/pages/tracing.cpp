// Spans: which are recorded, the page /traces, and the export to a collector.
#include "hawser/tracing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http_client.h"
#include "hawser/pages.h"
#include "observe/span_ring.h"
#include "tests/python_process.h"
#include "tests/testing.h"

namespace hawser::tracing_test {

using namespace testing_tools;
using testing::HasSubstr;
using testing::Not;

// Echoes the context of the call, so that the caller sees the span of the server.
std::string context_of(Context& context) { return std::string(context.metadata().find("traceparent").value_or("")); }
Result<int> breaks(std::string_view why) { return fail(ErrorCode::application, std::string(why)); }
Task<int> lasts(Context& context) {
  co_await context.loop().sleep(30ms);
  co_return 1;
}
int waiting = 0;
Task<Result<int>> waits(Context& context) {
  ++waiting;
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  if (!slept) co_return std::unexpected(slept.error());
  co_return 1;
}

// A running collector.py, which prints what it receives.
class Collector {
 public:
  explicit Collector(std::string_view statuses)
      : process_(std::filesystem::path(__FILE__).parent_path() / "collector.py", std::string(statuses)),
        port_(process_.listening_port()) {
    EXPECT_NE(port_, 0) << process_.output;
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1/traces"; }
  // The next line. Waits for it; the watchdog ends a test that waits for ever.
  std::string line() {
    std::string found = process_.line();
    if (found.empty()) return "the collector has ended";
    if (found.ends_with('\n')) found.pop_back();
    return found;
  }

 private:
  PythonProcess process_;
  const int port_;
};

class Tracing : public ::testing::Test {
 protected:
  static LogSink quiet() {
    return [](LogLevel, std::string_view, std::string_view) {};
  }
  // Runs `body(client)` against a server that records with `server_tracer`. The client records with `tracer` if there
  // is one.
  template <class Body>
  void run(Tracer server_tracer, std::optional<Tracer> tracer, Body body) {
    Server server(loop, {.listen = "127.0.0.1:0"});
    server.use(server_tracer.server_spans());
    server.register_handler<context_of, breaks, lasts, waits>();
    ASSERT_TRUE(server.start());
    loop.run([](Loop& here, Server& on, std::optional<Tracer> with, Body& use) -> Task<void> {
      Client client(here, {.transports = {.required = "stream"}});
      if (with) client.use(with->client_spans());
      auto connected = co_await client.connect(on.address());
      REQUIRE_OK(connected);
      co_await use(client);
      auto idle = co_await eventually(here, [&] { return on.counters().calls_in_flight == 0; });
      EXPECT_TRUE(idle);
    }(loop, server, std::move(tracer), body));
  }
  Loop loop{LoopOptions{.log = quiet()}};
};

TEST_F(Tracing, SpansOfAClientAndItsServerAreOneTrace) {
  const Tracer tracer({.ratio = 1});
  std::string seen;
  run(tracer, tracer, [&seen](Client& client) -> Task<void> {
    auto context = co_await client.call<context_of>();
    REQUIRE_OK(context);
    seen = *context;
  });
  const std::vector<Span> spans = tracer.latest(10);
  ASSERT_EQ(spans.size(), 2U);
  const bool first_is_client = spans[0].kind == Span::Kind::client;
  const Span& client = spans[first_is_client ? 0 : 1];
  const Span& server = spans[first_is_client ? 1 : 0];
  EXPECT_EQ(client.kind, Span::Kind::client);
  EXPECT_EQ(server.kind, Span::Kind::server);
  EXPECT_EQ(client.trace_id, server.trace_id);
  EXPECT_EQ(server.parent_id, client.span_id);
  EXPECT_EQ(client.parent_id, (std::array<std::uint8_t, 8>{}));
  EXPECT_EQ(client.method, method_name<context_of>);
  EXPECT_EQ(server.method, client.method);
  EXPECT_EQ(client.protocol, "hawser");
  EXPECT_EQ(client.attempts, 1U);
  EXPECT_GT(client.reply_bytes, 0U);
  EXPECT_FALSE(client.failed);
  // The handler sees the span of its server.
  const std::optional<TraceContext> of_handler = TraceContext::parse(seen);
  ASSERT_TRUE(of_handler);
  EXPECT_EQ(of_handler->span_id, server.span_id);
  EXPECT_TRUE(of_handler->sampled);
}

TEST_F(Tracing, TheCallerDecides) {
  const Tracer never({.ratio = 0});
  const Tracer always({.ratio = 1});
  const Tracer skipping({.ratio = 0, .failed_calls = false});  // Its interceptor is skipped where it can be.
  const TraceContext yes = TraceContext::begin(true);
  const TraceContext no = TraceContext::begin(false);
  const auto body = [&](Client& client) -> Task<void> {
    for (const TraceContext* context : {&yes, &no}) {
      CallOptions options;
      context->add_to(options);
      auto reply = co_await client.call<context_of>(options);
      REQUIRE_OK(reply);
      EXPECT_EQ(*reply == no.traceparent(), context == &no);
    }
  };
  run(never, std::nullopt, body);
  run(always, std::nullopt, body);
  run(skipping, std::nullopt, body);
  for (const Tracer& tracer : {never, always, skipping}) {
    const std::vector<Span> spans = tracer.latest(10);
    ASSERT_EQ(spans.size(), 1U);
    EXPECT_EQ(spans[0].trace_id, yes.trace_id);
    EXPECT_EQ(spans[0].parent_id, yes.span_id);
    EXPECT_EQ(spans[0].reason, Span::Reason::sampled);
  }
}

TEST_F(Tracing, FailedAndSlowCallsAreRecordedAfterwards) {
  const Tracer tracer({.ratio = 0, .slow_calls = 20ms});
  run(tracer, std::nullopt, [](Client& client) -> Task<void> {
    auto fast = co_await client.call<context_of>();
    EXPECT_OK(fast);
    auto failed = co_await client.call<breaks>("why \"not\"");
    EXPECT_FALSE(failed);
    auto slow = co_await client.call<lasts>();
    EXPECT_OK(slow);
    // A call whose caller does not wait any more has failed.
    waiting = 0;
    Scope scope;
    scope.spawn([](Client& on) -> Task<void> {
      auto dropped = co_await on.call<waits>();
      ADD_FAILURE() << "the call has ended";
    }(client));
    auto served = co_await eventually(*Loop::current(), [] { return waiting == 1; });
    EXPECT_TRUE(served);
  });
  std::vector<Span> spans = tracer.latest(10);
  std::erase_if(spans, [](const Span& span) { return span.method == method_name<context_of>; });  // A slow machine.
  ASSERT_EQ(spans.size(), 3U);
  const auto of = [&](std::string_view method) {
    const auto at = std::ranges::find(spans, method, &Span::method);
    return at == spans.end() ? Span{} : *at;
  };
  EXPECT_EQ(of(method_name<breaks>).reason, Span::Reason::failed);
  EXPECT_EQ(of(method_name<breaks>).code, ErrorCode::application);
  EXPECT_EQ(of(method_name<breaks>).error, "why \"not\"");
  EXPECT_EQ(of(method_name<lasts>).reason, Span::Reason::slow);
  EXPECT_GE(of(method_name<lasts>).duration, 20ms);
  EXPECT_EQ(of(method_name<waits>).reason, Span::Reason::failed);
  EXPECT_TRUE(of(method_name<waits>).failed);
}

TEST_F(Tracing, TheRatioHolds) {
  const Tracer tracer({.ratio = 0.25, .spans_per_thread = 2048});
  int sampled = 0;  // Replies with a context, which only the handlers of sampled calls see.
  run(tracer, std::nullopt, [&sampled](Client& client) -> Task<void> {
    for (int i = 0; i < 2000; ++i) {
      auto reply = co_await client.call<context_of>();
      REQUIRE_OK(reply);
      if (!reply->empty()) ++sampled;
    }
  });
  EXPECT_EQ(tracer.counters().recorded, static_cast<std::uint64_t>(sampled));
  // 500 are expected; the standard deviation is 19.
  EXPECT_GT(tracer.counters().recorded, 300U);
  EXPECT_LT(tracer.counters().recorded, 700U);
}

TEST_F(Tracing, OptionsAreChecked) {
  EXPECT_THROW(Tracer({.ratio = 1.5}), std::invalid_argument);
  EXPECT_THROW(Tracer({.ratio = -1}), std::invalid_argument);
  EXPECT_THROW(Tracer({.spans_per_thread = 100}), std::invalid_argument);
  EXPECT_THROW(Tracer({.spans_per_thread = 0}), std::invalid_argument);
}

TEST_F(Tracing, MemoryIsBounded) {
  const Tracer tracer({.spans_per_thread = 4, .threads_max = 1});
  Span span;
  for (int i = 0; i < 100; ++i) {
    span.method = std::string(200, 'm') + std::to_string(i);
    span.attempts = static_cast<unsigned>(i);
    tracer.record(span);
  }
  std::thread([&] { tracer.record(span); }).join();
  EXPECT_EQ(tracer.counters().recorded, 100U);
  EXPECT_EQ(tracer.counters().lost, 1U);
  const std::vector<Span> kept = tracer.latest(1000);
  ASSERT_EQ(kept.size(), 4U);
  for (const Span& one : kept) {
    EXPECT_GE(one.attempts, 96U);
    EXPECT_EQ(one.method, std::string(Span::method_bytes_max, 'm'));
  }
}

TEST(SpanRing, ReadersNeverSeeHalfASpan) {
  observe::SpanRing ring(4);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    Span span;
    for (unsigned i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      span.attempts = i;
      span.request_bytes = span.reply_bytes = i;
      span.method = std::string(60, static_cast<char>('a' + i % 26));
      ring.write(span);
    }
  });
  std::uint64_t read = 0;
  std::uint64_t torn = 0;
  soon([&] {
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t end = ring.written();
      if (end == 0) continue;
      const std::optional<Span> span = ring.read(end - 1);
      if (!span) continue;
      ++read;
      const bool whole = span->request_bytes == span->attempts && span->reply_bytes == span->attempts &&
                         span->method == std::string(60, static_cast<char>('a' + span->attempts % 26));
      if (!whole) ++torn;
    }
    return read >= 10'000;
  });
  stop = true;
  writer.join();
  EXPECT_GE(read, 10'000U);
  EXPECT_EQ(torn, 0U);
}

// ---- The export ----

Span some_span(std::string_view method) {
  Span span;
  const TraceContext context = TraceContext::begin(true);
  span.trace_id = context.trace_id;
  span.span_id = context.span_id;
  span.begin = std::chrono::system_clock::now();
  span.duration = 1ms;
  span.method = method;
  span.protocol = "hawser";
  return span;
}

// Exports while `body` runs, and until everything has been sent.
template <class Body>
void while_exporting(Loop& loop, const Tracer& tracer, OtlpOptions options, Body body) {
  loop.run([](Loop& here, Tracer of, OtlpOptions with, Body& use) -> Task<void> {
    std::stop_source stop;
    Scope scope;
    scope.spawn(export_spans(of, std::move(with), stop.get_token()));
    co_await use(here);
    stop.request_stop();
    co_await scope.join();
  }(loop, tracer, std::move(options), body));
}

TEST_F(Tracing, ACollectorGetsEverySpanAfterItsOutage) {
  Collector collector("503,429,200");
  const Tracer tracer({.ratio = 1});
  OtlpOptions options{.url = collector.url(), .service = "a \"shop\"", .interval = 1ms, .retry_min = 1ms};
  while_exporting(loop, tracer, options, [&](Loop& here) -> Task<void> {
    for (int i = 0; i < 5; ++i) tracer.record(some_span("shop.Orders/Place" + std::to_string(i)));
    Span failed = some_span("shop.Orders/Fail");
    failed.failed = true;
    failed.error = "bad\n\"order\"\x80";
    failed.reason = Span::Reason::failed;
    failed.kind = Span::Kind::client;
    failed.parent_id = failed.span_id;
    tracer.record(failed);
    auto done = co_await eventually(here, [&] { return tracer.counters().exported == 6; });
    EXPECT_TRUE(done);
  });
  EXPECT_EQ(tracer.counters().export_retries, 2U);
  EXPECT_EQ(tracer.counters().export_failed, 0U);
  EXPECT_EQ(tracer.counters().export_missed, 0U);
  std::vector<std::string> lines;
  for (int i = 0; i < 6; ++i) lines.push_back(collector.line());
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(lines[i], HasSubstr("a \"shop\" ")) << i;
    EXPECT_THAT(lines[i], HasSubstr(" - 2 0 sampled shop.Orders/Place" + std::to_string(i)));
  }
  EXPECT_THAT(lines[5], HasSubstr(" 3 2 failed shop.Orders/Fail"));
}

TEST_F(Tracing, SpansThatACollectorRefusesAreCounted) {
  Collector collector("400");
  const Tracer tracer({.ratio = 1});
  OtlpOptions options{.url = collector.url(), .interval = 1ms, .retry_min = 1ms};
  while_exporting(loop, tracer, options, [&](Loop& here) -> Task<void> {
    tracer.record(some_span("x"));
    auto done = co_await eventually(here, [&] { return tracer.counters().export_failed == 1; });
    EXPECT_TRUE(done);
  });
  EXPECT_EQ(tracer.counters().export_retries, 0U);
  EXPECT_EQ(tracer.counters().exported, 0U);
}

TEST_F(Tracing, WithoutACollectorMemoryStaysBoundedAndLossesAreCounted) {
  const Tracer tracer({.ratio = 1, .spans_per_thread = 8});
  OtlpOptions options{.url = "http://127.0.0.1:1/v1/traces", .interval = 1ms, .attempts_max = 2, .retry_min = 1ms};
  while_exporting(loop, tracer, options, [&](Loop& here) -> Task<void> {
    for (int i = 0; i < 100; ++i) tracer.record(some_span("x"));
    auto done = co_await eventually(here, [&] { return tracer.counters().export_failed >= 8; });
    EXPECT_TRUE(done);
  });
  const Tracer::Counters counters = tracer.counters();
  EXPECT_EQ(counters.export_missed + counters.export_failed, 100U);
  EXPECT_EQ(counters.export_missed, 92U);
  EXPECT_GE(counters.export_retries, 1U);
  EXPECT_EQ(tracer.latest(100).size(), 8U);
}

// Each batch that a collector does not answer takes request_timeout, and rings have many.
TEST_F(Tracing, AfterAStopTheFirstBatchThatIsNotAcceptedIsTheLast) {
  Collector collector("200,503,200");
  const Tracer tracer({.ratio = 1});
  OtlpOptions options{.url = collector.url(), .interval = 1h, .batch_spans_max = 1};
  tracer.record(some_span("first"));
  while_exporting(loop, tracer, options, [&](Loop& here) -> Task<void> {
    auto done = co_await eventually(here, [&] { return tracer.counters().exported == 1; });
    EXPECT_TRUE(done);
    // The export sleeps, and its next pass is the last.
    for (int i = 0; i < 5; ++i) tracer.record(some_span("left"));
  });
  EXPECT_EQ(tracer.counters().exported, 1U);
  EXPECT_EQ(tracer.counters().export_failed, 5U);
  EXPECT_EQ(tracer.counters().export_missed, 0U);
}

TEST_F(Tracing, OptionsOfTheExportAreChecked) {
  const Tracer tracer;
  Server server({.listen = "127.0.0.1:0"});
  const auto refusal = [&](auto change) -> std::string {
    OtlpOptions options;
    change(options);
    try {
      export_spans(server, tracer, options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string begin = "hawser: OtlpOptions::";
  EXPECT_EQ(refusal([](OtlpOptions& options) { options.batch_spans_max = 0; }),
            begin + "batch_spans_max is 0, and must be at least 1");
  EXPECT_EQ(refusal([](OtlpOptions& options) { options.attempts_max = 0; }),
            begin + "attempts_max is 0, and must be at least 1");
  EXPECT_EQ(refusal([](OtlpOptions& options) { options.interval = -1s; }),
            begin + "interval is -1000000000ns, and must be more than 0");
  EXPECT_EQ(refusal([](OtlpOptions& options) { options.request_timeout = 0s; }),
            begin + "request_timeout is 0s, and must be more than 0");
  EXPECT_EQ(refusal([](OtlpOptions& options) { options.retry_min = -1ms; }),
            begin + "retry_min is -1000000ns, and must be more than 0");
  EXPECT_EQ(refusal([](OtlpOptions& options) {
              options.retry_min = 2ms;
              options.retry_max = 1ms;
            }),
            begin + "retry_max is 1ms, and must be at least retry_min (2ms)");
  EXPECT_EQ(refusal([](OtlpOptions&) {}), "accepted");
}

TEST_F(Tracing, AServerExportsUntilItStops) {
  Collector collector("200");
  const Tracer tracer({.ratio = 1});
  {
    Server server({.listen = "127.0.0.1:0", .loop = {.log = quiet()}});
    server.use(tracer.server_spans());
    server.register_handler<context_of>();
    export_spans(server, tracer, {.url = collector.url(), .interval = 1ms});
    ASSERT_TRUE(server.start());
    loop.run([](Loop& here, std::string address, const Tracer& of) -> Task<void> {
      Client client(here);
      auto connected = co_await client.connect(std::move(address));
      REQUIRE_OK(connected);
      auto reply = co_await client.call<context_of>();
      EXPECT_OK(reply);
      auto exported = co_await eventually(here, [&] { return of.counters().exported == 1; });
      EXPECT_TRUE(exported);
    }(loop, server.address(), tracer));
  }
  EXPECT_THAT(collector.line(), HasSubstr(method_name<context_of>));
}

// ---- The page ----

TEST_F(Tracing, ThePageHasTheLatestTheSlowestAndOneTrace) {
  const Tracer tracer({.ratio = 1});
  Server server({.listen = "127.0.0.1:0", .loop = {.log = quiet()}});
  server.use(tracer.server_spans());
  enable_pages(server, {.tracer = tracer});
  ASSERT_TRUE(server.start());
  Span parent = some_span("test.Outer/<b>Call");
  parent.duration = 5s;
  Span child = some_span("test.Inner/Call");
  child.trace_id = parent.trace_id;
  child.parent_id = parent.span_id;
  child.failed = true;
  child.error = "<script>alert(1)</script>";
  Span other = some_span("test.Other/Call");
  // Peers choose ids: each of these is the parent of the other.
  Span one = some_span("test.One/Call");
  Span two = some_span("test.Two/Call");
  two.trace_id = one.trace_id;
  one.parent_id = two.span_id;
  two.parent_id = one.span_id;
  for (const Span* span : {&child, &parent, &other, &one, &two}) tracer.record(*span);
  TraceContext context;
  context.trace_id = parent.trace_id;
  const std::string id = context.trace_id_text();
  context.trace_id = one.trace_id;
  const std::string round = context.trace_id_text();
  loop.run([](Loop& here, std::string base, std::string wanted, std::string cycle) -> Task<void> {
    HttpClient http(here);
    auto all = co_await http.get(base + "/traces?format=json");
    REQUIRE_OK(all);
    EXPECT_EQ(all->status, 200);
    EXPECT_THAT(all->body, HasSubstr("test.Other/Call"));
    EXPECT_THAT(all->body, HasSubstr("\"slowest\""));
    EXPECT_LT(all->body.find("<b>Call") == std::string::npos ? all->body.find("test.Outer") : 0,
              all->body.find("test.Inner"));  // The slowest comes first.
    auto tree = co_await http.get(base + "/traces?format=text&trace=" + wanted);
    REQUIRE_OK(tree);
    const std::size_t outer = tree->body.find("test.Outer/");
    const std::size_t inner = tree->body.find("\u00b7 test.Inner/Call");
    REQUIRE(outer != std::string::npos);
    REQUIRE(inner != std::string::npos);
    EXPECT_LT(outer, inner);
    EXPECT_THAT(tree->body, Not(HasSubstr("test.Other")));
    auto html = co_await http.get(base + "/traces?format=html&trace=" + wanted);
    REQUIRE_OK(html);
    EXPECT_THAT(html->body, Not(HasSubstr("<script>alert")));
    EXPECT_THAT(html->body, Not(HasSubstr("<b>Call")));
    auto ring = co_await http.get(base + "/traces?format=text&trace=" + cycle);
    REQUIRE_OK(ring);
    EXPECT_THAT(ring->body, HasSubstr("test.One/Call"));
    EXPECT_THAT(ring->body, HasSubstr("test.Two/Call"));
    auto none = co_await http.get(base + "/traces?trace=zz");
    REQUIRE_OK(none);
    EXPECT_THAT(none->body, HasSubstr("No span of this trace"));
  }(loop, "http://" + server.address(), id, round));
}

}  // namespace hawser::tracing_test
