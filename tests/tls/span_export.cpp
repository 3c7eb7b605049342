#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "hawser/tracing.h"
#include "tests/tls/fixture.h"

// The export of spans to a collector behind TLS.
namespace hawser {
namespace {

using namespace testing_tools;

class SpanExport : public TlsFixture {
 protected:
  SpanExport() : tracer({.ratio = 1}) {
    for (int i = 0; i < 3; ++i) {
      Span span;
      span.trace_id[0] = span.span_id[0] = static_cast<std::uint8_t>(i + 1);
      span.method = "shop/buy";
      span.protocol = "hawser";
      tracer.record(span);
    }
  }
  void start_collector() {
    tls_options.certificates = {authority.issue("collector")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->enable(http().route("POST", "/v1/traces", [this](HttpRequest& request) { return collect(request); }));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  Task<HttpResponse> collect(HttpRequest& request) {
    const std::lock_guard lock(collected_mutex);
    collected.push_back(std::string(as_text(request.body())));
    co_return HttpResponse{};
  }
  // Exports what the tracer has, in one attempt.
  void export_to(std::string url, std::shared_ptr<transport::ClientSecurity> client) {
    OtlpOptions with{.url = std::move(url), .security = std::move(client)};
    std::stop_source stopped;
    stopped.request_stop();
    Loop loop({.log = options.loop.log});
    loop.run(export_spans(tracer, std::move(with), stopped.get_token()));
  }
  std::string url() const { return "https://localhost:" + port() + "/v1/traces"; }

  Tracer tracer;
  std::mutex collected_mutex;
  std::vector<std::string> collected;
};

TEST_F(SpanExport, ReachesACollectorBehindTls) {
  start_collector();
  export_to(url(), TlsClient(client_options()));
  EXPECT_EQ(tracer.counters().exported, 3U);
  EXPECT_EQ(tracer.counters().export_failed, 0U);
  EXPECT_EQ(security->counters().handshakes, 1U);
  const std::lock_guard lock(collected_mutex);
  ASSERT_EQ(collected.size(), 1U);
  EXPECT_HAS(collected[0], "03000000000000000000000000000000");
}

TEST_F(SpanExport, ACollectorThatIsNotTrustedGetsNothing) {
  start_collector();
  const security::tls::Authority other(folder.path().string(), "other");
  TlsClientOptions wrong = client_options();
  wrong.ca_file = other.ca_file();
  export_to(url(), TlsClient(wrong));
  EXPECT_EQ(tracer.counters().exported, 0U);
  EXPECT_EQ(tracer.counters().export_failed, 3U);
  EXPECT_HAS(logged(), "3 spans were not exported to https://localhost:");
  EXPECT_HAS(logged(), "certificate");
  const std::lock_guard lock(collected_mutex);
  EXPECT_TRUE(collected.empty());
}

TEST_F(SpanExport, HttpsWithoutSecurityNamesTheOption) {
  export_to("https://localhost:1/v1/traces", nullptr);
  EXPECT_EQ(tracer.counters().export_failed, 3U);
  EXPECT_EQ(tracer.counters().export_retries, 0U);
  EXPECT_HAS(logged(), "the option `security`");
}

}  // namespace
}  // namespace hawser
