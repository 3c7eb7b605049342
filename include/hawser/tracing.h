#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/interceptor.h"
#include "hawser/server.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/trace.h"

// Spans of calls: recorded by interceptors, shown by the page /traces, exported over OTLP/HTTP. Component
// hawser::observe. docs/tracing.md.
//
//   hawser::Tracer tracer({.ratio = 0.01});
//   server.use(tracer.server_spans());
//   client.use(tracer.client_spans());
//   hawser::enable_pages(server, {.tracer = tracer});
//   hawser::export_spans(server, tracer, {.url = "http://127.0.0.1:4318/v1/traces", .service = "shop"});
namespace hawser {

namespace transport {
class ClientSecurity;
}

// One call, as one side saw it.
struct Span {
  enum class Kind : std::uint8_t { server, client };
  // Why the span was recorded. The first reason that applies.
  enum class Reason : std::uint8_t { sampled, failed, slow };

  // Longer texts are cut.
  static constexpr std::size_t method_bytes_max = 95;
  static constexpr std::size_t peer_bytes_max = 55;
  static constexpr std::size_t protocol_bytes_max = 15;
  static constexpr std::size_t error_bytes_max = 95;

  Kind kind = Kind::server;
  Reason reason = Reason::sampled;
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  std::array<std::uint8_t, 8> parent_id{};  // Zero: the first span of its trace.
  std::chrono::system_clock::time_point begin{};
  Duration duration{};
  std::uint64_t request_bytes = 0;
  std::uint64_t reply_bytes = 0;
  unsigned attempts = 0;  // Requests of a client; 0 at a server.
  bool failed = false;
  ErrorCode code = ErrorCode::application;  // If failed.
  std::string method = {};
  std::string peer = {};
  std::string protocol = {};
  std::string error = {};  // The text of the error, if failed.
};

// ratio, failed_calls and slow_calls can be changed later; see Tracer.
struct TracerOptions {
  // Part of the traces that begin here which are recorded, from 0 to 1. A call that continues a trace is recorded if
  // its caller records it.
  double ratio = 0;
  // Calls that fail, and calls that take at least this time, are recorded although they were not sampled. Their own
  // spans only: it is not known yet when the calls that they make begin. A call that is answered in the tick in which
  // it came has the duration 0.
  bool failed_calls = true;
  Duration slow_calls = forever;
  // Spans that are kept for each thread that records any, with 376 bytes each. A power of two. Older ones are replaced.
  std::size_t spans_per_thread = 1024;
  std::size_t threads_max = 64;  // Spans of further threads are lost, and counted.
};

// Records spans. A value: copies share them. Any thread; recording takes no lock after the first span of a thread.
class Tracer {
 public:
  // Throws std::invalid_argument for options outside of their ranges.
  explicit Tracer(TracerOptions options = {});

  struct State;
  // Interceptors. That of a server goes before those whose time it shall measure. Each sampled call has a new span,
  // whose traceparent takes the place of the one that the request had: handlers see it in their metadata, and peers
  // receive it.
  struct ServerSpans {
    Task<Result<void>> operator()(IncomingCall& call, Next next) const;
    // True for a call that is not sampled. skipped() records it if it has failed or was slow.
    bool skips(MetadataView metadata, detail::CallDraw& draw) const noexcept;
    void skipped(const SkippedCall& call) const noexcept;
    std::shared_ptr<State> tracer;
  };
  struct ClientSpans {
    Task<Result<void>> operator()(OutgoingCall& call, Next next) const;
    std::shared_ptr<State> tracer;
  };
  ServerSpans server_spans() const { return {state_}; }
  ClientSpans client_spans() const { return {state_}; }

  // Change these options for calls that begin or end from now on. enable_pages() makes them options of /options:
  // tracer.ratio, tracer.failed_calls and tracer.slow_calls. set_ratio() fails with invalid_argument outside of 0 to 1.
  Result<void> set_ratio(double ratio) const;
  void set_failed_calls(bool failed_calls) const noexcept;
  void set_slow_calls(Duration slow_calls) const noexcept;
  // With the values in use.
  TracerOptions options() const noexcept;

  // Spans of the application, such as a step within a handler. The reason is kept as it is.
  void record(const Span& span) const;

  // The latest spans of all threads that are still kept, the newest first.
  std::vector<Span> latest(std::size_t spans_max) const;

  struct Counters {
    std::uint64_t recorded = 0;
    std::uint64_t lost = 0;           // No memory, or more than threads_max.
    std::uint64_t exported = 0;       // The collector has accepted them.
    std::uint64_t export_missed = 0;  // Replaced by newer spans before they were exported.
    std::uint64_t export_failed = 0;  // The collector refused them, or did not answer in all attempts.
    std::uint64_t export_retries = 0;
  };
  Counters counters() const;

 private:
  friend struct OtlpExport;
  std::shared_ptr<State> state_;
};

struct OtlpOptions {
  // The collector's address for traces, over http or https.
  std::string url = "http://127.0.0.1:4318/v1/traces";
  // Protects the connections of https: a TlsClient (hawser/tls.h). Null: such an address fails, which is logged.
  std::shared_ptr<transport::ClientSecurity> security = {};
  std::string service = "hawser";                                    // The attribute service.name.
  std::vector<std::pair<std::string, std::string>> attributes = {};  // Further attributes of the resource.
  std::vector<std::pair<std::string, std::string>> headers = {};     // Fields of each request, such as a credential.
  Duration interval = std::chrono::seconds(5);                       // Between exports, when fewer spans are there.
  std::size_t batch_spans_max = 256;                                 // Spans of one request.
  Duration request_timeout = std::chrono::seconds(10);
  // Attempts for one batch. A failed connection and the statuses 429, 502, 503 and 504 are tried again, after a pause
  // that doubles, or after Retry-After (at most retry_max).
  unsigned attempts_max = 5;
  Duration retry_min = std::chrono::milliseconds(500);
  Duration retry_max = std::chrono::seconds(30);
};

// Sends the spans that `tracer` has recorded and records to a collector of OpenTelemetry, in JSON. Runs until
// `stopping` is stopped. Spans that were recorded until then are sent in one attempt each; after the first batch that
// the collector does not accept, the rest is counted in `export_failed`. Spans that are recorded faster than they are
// sent are replaced by newer ones, and counted. Throws std::invalid_argument for durations and limits of 0.
Task<void> export_spans(Tracer tracer, OtlpOptions options, std::stop_token stopping);
// The same as background work of a server. Throws std::logic_error once the server stops.
void export_spans(Server& server, Tracer tracer, OtlpOptions options = {});

// For the library and its tests: the body of a request with these spans.
std::string otlp_json(const std::vector<Span>& spans, const OtlpOptions& options);

}  // namespace hawser
