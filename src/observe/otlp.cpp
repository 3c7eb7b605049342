#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>

#include "hawser/http_client.h"
#include "hawser/tracing.h"
#include "json/writer.h"
#include "observe/document.h"
#include "observe/tracer_state.h"
#include "rpc/server/live_options.h"

namespace hawser {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void append_hex(std::string& out, std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  out += '"';
  for (const std::uint8_t byte : bytes) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  out += '"';
}

void append_text(std::string& out, std::string_view text) { json::append_text(out, observe::harmless(text)); }

void append_attribute(std::string& out, std::string_view key, std::string_view text) {
  if (out.back() != '[') out += ',';
  out += "{\"key\":";
  append_text(out, key);
  out += ",\"value\":{\"stringValue\":";
  append_text(out, text);
  out += "}}";
}

// OTLP writes 64-bit numbers as text.
void append_attribute(std::string& out, std::string_view key, std::uint64_t number) {
  if (out.back() != '[') out += ',';
  out += "{\"key\":";
  append_text(out, key);
  out += ",\"value\":{\"intValue\":\"" + std::to_string(number) + "\"}}";
}

std::string nanoseconds(std::chrono::system_clock::time_point at, Duration after) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()) +
                     std::chrono::duration_cast<std::chrono::nanoseconds>(after);
  return '"' + std::to_string(std::max<std::int64_t>(since.count(), 0)) + '"';
}

std::string_view reason_of(Span::Reason reason) noexcept {
  constexpr std::array<std::string_view, 3> names = {"sampled", "failed", "slow"};
  return names[std::min<std::size_t>(static_cast<std::size_t>(reason), 2)];
}

void append_span(std::string& out, const Span& span) {
  if (out.back() != '[') out += ',';
  out += "{\"traceId\":";
  append_hex(out, span.trace_id);
  out += ",\"spanId\":";
  append_hex(out, span.span_id);
  if (std::ranges::any_of(span.parent_id, [](std::uint8_t byte) { return byte != 0; })) {
    out += ",\"parentSpanId\":";
    append_hex(out, span.parent_id);
  }
  out += ",\"name\":";
  append_text(out, span.method);
  out += span.kind == Span::Kind::server ? ",\"kind\":2" : ",\"kind\":3";
  out += ",\"startTimeUnixNano\":" + nanoseconds(span.begin, {});
  out += ",\"endTimeUnixNano\":" + nanoseconds(span.begin, span.duration);
  out += ",\"attributes\":[";
  append_attribute(out, "rpc.system", span.protocol);
  if (const std::size_t slash = span.method.rfind('/'); slash != std::string::npos) {
    append_attribute(out, "rpc.service", std::string_view(span.method).substr(0, slash));
    append_attribute(out, "rpc.method", std::string_view(span.method).substr(slash + 1));
  } else {
    append_attribute(out, "rpc.method", span.method);
  }
  append_attribute(out, span.kind == Span::Kind::server ? "client.address" : "server.address", span.peer);
  append_attribute(out, "hawser.request.bytes", span.request_bytes);
  append_attribute(out, "hawser.reply.bytes", span.reply_bytes);
  append_attribute(out, "hawser.recorded", reason_of(span.reason));
  if (span.attempts > 1) append_attribute(out, "hawser.attempts", std::uint64_t{span.attempts});
  if (span.failed) append_attribute(out, "error.type", to_string(span.code));
  out += "],\"status\":{";
  if (span.failed) {
    out += "\"code\":2,\"message\":";
    append_text(out, span.error);
  }
  out += "}}";
}

bool worth_another_attempt(const Result<HttpClientResponse>& response) noexcept {
  if (!response) {
    const ErrorCode code = response.error().code;
    return code != ErrorCode::invalid_argument && code != ErrorCode::limit_exceeded && code != ErrorCode::cancelled;
  }
  return response->status == 429 || (response->status >= 502 && response->status <= 504);
}

}  // namespace

std::string otlp_json(const std::vector<Span>& spans, const OtlpOptions& options) {
  std::string out = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
  append_attribute(out, "service.name", options.service);
  for (const auto& [key, value] : options.attributes) append_attribute(out, key, value);
  out += "]},\"scopeSpans\":[{\"scope\":{\"name\":\"hawser\"},\"spans\":[";
  for (const Span& span : spans) append_span(out, span);
  out += "]}]}]}";
  return out;
}

// Throws std::invalid_argument for options with which nothing could be exported, or without a pause.
void check_options(const OtlpOptions& options) {
  const auto demand = [](bool holds, const char* name, const std::string& value, const std::string& least) {
    if (holds) return;
    throw std::invalid_argument(std::string("hawser: OtlpOptions::") + name + " is " + value + ", and must be " +
                                least);
  };
  const auto at_least_one = [&](const char* name, std::uint64_t value) {
    demand(value != 0, name, std::to_string(value), "at least 1");
  };
  const auto more_than_zero = [&](const char* name, Duration value) {
    demand(value > Duration(0), name, rpc::option_text(value), "more than 0");
  };
  at_least_one("batch_spans_max", options.batch_spans_max);
  at_least_one("attempts_max", options.attempts_max);
  more_than_zero("interval", options.interval);
  more_than_zero("request_timeout", options.request_timeout);
  more_than_zero("retry_min", options.retry_min);
  demand(options.retry_max >= options.retry_min, "retry_max", rpc::option_text(options.retry_max),
         "at least retry_min (" + rpc::option_text(options.retry_min) + ")");
}

// One export that runs.
struct OtlpExport {
  OtlpExport(Loop& on, Tracer of, OtlpOptions given, std::stop_token until)
      : loop(on),
        tracer(*of.state_),
        kept(of.state_),
        options(std::move(given)),
        stopping(std::move(until)),
        http(on, {.security = options.security}) {}

  // The number behind the last span of the ring that is to be exported.
  std::uint64_t end_of(const observe::SpanRing& ring) const {
    if (!ends) return ring.written();
    const auto at = ends->find(&ring);
    return at == ends->end() ? 0 : at->second;
  }

  // The next spans of all rings, at most batch_spans_max. Counts what was replaced before it was read.
  std::vector<Span> next_batch() {
    std::vector<Span> batch;
    for (const auto& ring : tracer.rings()) {
      std::uint64_t& at = positions[ring.get()];
      const std::uint64_t end = end_of(*ring);
      if (const std::uint64_t oldest = std::min(ring->oldest(), end); at < oldest) {
        tracer.export_missed.fetch_add(oldest - at, std::memory_order_relaxed);
        at = oldest;
      }
      for (; at < end && batch.size() < options.batch_spans_max; ++at) {
        if (std::optional<Span> span = ring->read(at)) {
          batch.push_back(std::move(*span));
        } else {
          tracer.export_missed.fetch_add(1, std::memory_order_relaxed);
        }
      }
    }
    return batch;
  }

  Duration pause_after(const Result<HttpClientResponse>& response, unsigned attempts) const {
    Duration pause = options.retry_min * (1 << std::min(attempts, 20U) >> 1);
    if (response) {
      if (const auto field = response->header("Retry-After")) {
        unsigned seconds = 0;
        const auto [end, error] = std::from_chars(field->data(), field->data() + field->size(), seconds);
        if (error == std::errc() && end == field->data() + field->size()) pause = std::chrono::seconds(seconds);
      }
    }
    return std::clamp<Duration>(pause, Duration(0), options.retry_max);
  }

  Task<void> send(std::vector<Span> batch) {
    const std::string body = otlp_json(batch, options);
    for (unsigned attempts = 1;; ++attempts) {
      HttpClientRequest request;
      request.method = "POST";
      request.url = options.url;
      request.body = body;
      request.content_type = "application/json";
      request.headers = options.headers;
      request.timeout = options.request_timeout;
      const Result<HttpClientResponse> response = co_await http.send(std::move(request));
      if (response && response->status / 100 == 2) {
        tracer.exported.fetch_add(batch.size(), std::memory_order_relaxed);
        failing = false;
        co_return;
      }
      if (stopping.stop_requested() || attempts >= options.attempts_max || !worth_another_attempt(response)) {
        tracer.export_failed.fetch_add(batch.size(), std::memory_order_relaxed);
        // One line for each outage.
        if (!std::exchange(failing, true)) {
          loop.log(LogLevel::warning, "tracing",
                   std::to_string(batch.size()) + " spans were not exported to " + options.url + ": " +
                       (response ? "status " + std::to_string(response->status) : response.error().text));
        }
        co_return;
      }
      tracer.export_retries.fetch_add(1, std::memory_order_relaxed);
      static_cast<void>(co_await loop.sleep(pause_after(response, attempts), stopping));
    }
  }

  Task<void> run() {
    while (!stopping.stop_requested()) {
      std::vector<Span> batch = next_batch();
      if (batch.empty()) {
        static_cast<void>(co_await loop.sleep(options.interval, stopping));
      } else {
        co_await send(std::move(batch));
      }
    }
    co_await finish();
  }

  // Exports what has been recorded until now: other threads may record for ever. Ends with the first batch that is not
  // accepted, because each further one could take request_timeout.
  Task<void> finish() {
    ends.emplace();
    for (const auto& ring : tracer.rings()) ends->emplace(ring.get(), ring->written());
    bool accepted = true;
    for (std::vector<Span> batch = next_batch(); !batch.empty(); batch = next_batch()) {
      if (accepted) {
        co_await send(std::move(batch));
        accepted = !failing;
      } else {
        tracer.export_failed.fetch_add(batch.size(), std::memory_order_relaxed);
      }
    }
  }

  Loop& loop;
  Tracer::State& tracer;
  const std::shared_ptr<Tracer::State> kept;
  const OtlpOptions options;
  const std::stop_token stopping;
  HttpClient http;
  // The number of the next span of each ring. A tracer keeps its rings.
  std::map<const observe::SpanRing*, std::uint64_t> positions;
  // end_of() each ring once `stopping` has been stopped; empty before.
  std::optional<std::map<const observe::SpanRing*, std::uint64_t>> ends = {};
  bool failing = false;
};

Task<void> export_spans(Tracer tracer, OtlpOptions options, std::stop_token stopping) {
  Loop* const loop = Loop::current();
  if (loop == nullptr) throw std::logic_error("hawser: export_spans() must be awaited on a loop");
  check_options(options);
  OtlpExport work(*loop, std::move(tracer), std::move(options), std::move(stopping));
  co_await work.run();
}

void export_spans(Server& server, Tracer tracer, OtlpOptions options) {
  check_options(options);
  struct Work {
    Task<void> operator()(Background background) const {
      return export_spans(tracer, options, std::move(background.stopping));
    }
    Tracer tracer;
    OtlpOptions options;
  };
  if (const Result<void> spawned = server.spawn(Work{std::move(tracer), std::move(options)}); !spawned) {
    throw std::logic_error("hawser: export_spans(): " + spawned.error().text);
  }
}

}  // namespace hawser
