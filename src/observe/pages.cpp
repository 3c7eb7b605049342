#include "hawser/pages.h"

#include <charconv>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/kernel_random.h"
#include "base/parse_double.h"
#include "hawser/server_metrics.h"
#include "observe/access.h"
#include "observe/machine_metrics.h"
#include "observe/page_state.h"
#include "rpc/port/health_state.h"
#include "rpc/server/inspector.h"

namespace hawser {
namespace observe {
namespace {

using State = std::shared_ptr<PageState>;

enum class PageFormat : std::uint8_t { text, json, html };

PageFormat format_of(const HttpRequest& request) {
  const std::string wanted = query_of(request.query(), "format");
  if (wanted == "json") return PageFormat::json;
  if (wanted == "html") return PageFormat::html;
  if (wanted == "text") return PageFormat::text;
  const std::string_view accept = request.header("accept").value_or("");
  if (accept.find("text/html") != std::string_view::npos) return PageFormat::html;
  return accept.find("application/json") != std::string_view::npos ? PageFormat::json : PageFormat::text;
}

HttpResponse plain(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(text) + "\n";
  response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  return response;
}

HttpResponse rendered(const Document& document, PageFormat format, const PagesOptions& options) {
  if (format == PageFormat::html) return html_response(document, options);
  HttpResponse response = plain(200, format == PageFormat::json ? render_json(document) : render_text(document));
  response.body.pop_back();  // The line end that plain() adds.
  if (format == PageFormat::json) response.content_type = "application/json";
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

HttpResponse page_response(const PageState& state, const HttpRequest& request, Document document) {
  if (query_of(request.query(), "format").empty()) document.query = request.query();
  document.asks_token = !state.token.empty();
  return rendered(document, format_of(request), state.options);
}

Task<HttpResponse> serve_page(State state, Builder build, HttpRequest& request) {
  if (std::string why = refusal_of(request, state->options.pages, state->options); !why.empty()) {
    co_return plain(403, std::move(why));
  }
  co_return page_response(*state, request, co_await build(*state, request));
}

// `page` belongs to the options of `state`.
Task<HttpResponse> serve_application_page(State state, const ApplicationPage& page, HttpRequest& request) {
  if (std::string why = refusal_of(request, state->options.pages, state->options); !why.empty()) {
    co_return plain(403, std::move(why));
  }
  co_return page_response(*state, request, application_page(page, request));
}

void audit_refusal(PageState& state, const HttpRequest& request, std::string_view why) {
  if (!state.refusals.take()) return;
  request.loop().log(
      LogLevel::info, "audit",
      "POST " + harmless(request.path(), 128) + " of " + client_of(request) + " refused: " + harmless(why));
}

Task<HttpResponse> serve_change(State state, Change change, std::string back, HttpRequest& request) {
  if (std::string why = change_refusal_of(request, state->options, state->token); !why.empty()) {
    audit_refusal(*state, request, why);
    co_return plain(403, std::move(why));
  }
  const Result<std::string> done = co_await change(*state, request);
  if (!done) {
    audit_refusal(*state, request, done.error().text);
    co_return plain(done.error().code == ErrorCode::unknown_method ? 404 : 400, done.error().text);
  }
  request.loop().log(LogLevel::info, "pages", *done + " (asked by " + client_of(request) + ")");
  if (format_of(request) != PageFormat::html) co_return plain(200, *done);
  HttpResponse response = plain(303, *done);
  response.headers.emplace_back("Location", back);
  co_return response;
}

std::string metrics_text(const PageState& state, MetricFormat format) {
  std::string text = state.metrics.render(format);
  const auto append = [&](const MetricRegistry& registry) {
    constexpr std::string_view end = "# EOF\n";
    if (text.ends_with(end)) text.resize(text.size() - end.size());
    text += registry.render(format);
  };
  if (state.options.clusters) append(state.options.clusters->metrics());
  if (state.options.registry != nullptr) append(*state.options.registry);
  return text;
}

Task<HttpResponse> serve_metrics(State state, HttpRequest& request) {
  if (std::string why = refusal_of(request, state->options.metrics, state->options); !why.empty()) {
    co_return plain(403, std::move(why));
  }
  const std::string_view accept = request.header("accept").value_or("");
  const bool open = accept.find("application/openmetrics-text") != std::string_view::npos;
  const MetricFormat format = open ? MetricFormat::openmetrics : MetricFormat::prometheus;
  HttpResponse response = plain(200, {});
  response.content_type = std::string(content_type(format));
  // Many methods take more than a millisecond, so that the text is not made on a loop of the server, also while all
  // threads are busy. The loops of a server wait for their threads before it ends; a loop of the caller may not.
  if (rpc::Inspector::on_callers_loop(state->server)) {
    response.body = metrics_text(*state, format);
    co_return response;
  }
  Result<std::string> text = co_await request.loop().offload([state, format] { return metrics_text(*state, format); });
  if (!text) co_return plain(503, text.error().text);
  response.body = std::move(*text);
  co_return response;
}

// For what is not shown to the outside even where pages are, or costs time.
std::string inside_refusal_of(const HttpRequest& request, const PagesOptions& options) {
  std::string why = use_refusal_of(request, options);
  return why.empty() ? refusal_of(request, PageAccess::loopback, options) : why;
}

Task<HttpResponse> serve_record(State state, HttpRequest& request) {
  std::string why = inside_refusal_of(request, state->options);
  if (why.empty()) why = change_refusal_of(request, state->options, state->token);
  if (!why.empty()) {
    audit_refusal(*state, request, why);
    co_return plain(403, std::move(why));
  }
  const std::string given = query_of(request.query(), "ratio");
  const std::optional<double> ratio = given.empty() ? 1 : parse_double(given);
  if (!ratio) {
    co_return plain(400, "ratio is a number from 0 to 1, such as 0.5; this one is: " + harmless(given, 64));
  }
  Result<Recorder::Part> part = state->options.recorder->take(query_of(request.query(), "recording"), *ratio,
                                                              query_of(request.query(), "end") == "1",
                                                              query_of(request.query(), "streams") == "1");
  if (!part) co_return plain(part.error().code == ErrorCode::overloaded ? 409 : 400, part.error().text);
  HttpResponse response = plain(200, {});
  response.content_type = "application/octet-stream";
  response.body = std::move(part->records);
  response.headers.emplace_back("Hawser-Recorded", std::to_string(part->recorded));
  response.headers.emplace_back("Hawser-Dropped", std::to_string(part->dropped));
  response.headers.emplace_back("Hawser-Skipped", std::to_string(part->skipped));
  co_return response;
}

using TakeProfile = Task<HttpResponse> (*)(PageState& state, HttpRequest& request);

Task<HttpResponse> serve_profile(State state, TakeProfile take, HttpRequest& request) {
  std::string why = inside_refusal_of(request, state->options);
  if (!why.empty()) co_return plain(403, std::move(why));
  co_return co_await take(*state, request);
}

Task<HttpResponse> serve_live(State state, HttpRequest& request) {
  if (std::string why = refusal_of(request, state->options.health, state->options); !why.empty()) {
    co_return plain(403, std::move(why));
  }
  co_return plain(200, "OK");
}

Task<HttpResponse> serve_ready(State state, HttpRequest& request) {
  if (std::string why = refusal_of(request, state->options.health, state->options); !why.empty()) {
    co_return plain(403, std::move(why));
  }
  const std::string service = query_of(request.query(), "service");
  const bool details = refusal_of(request, state->options.pages, state->options).empty();
  const std::shared_ptr<rpc::HealthState> health = rpc::Inspector::health(state->server);
  std::vector<rpc::HealthState::Line> found;
  const HealthStatus status = health->status(service, &found);
  if (status == HealthStatus::unknown) co_return plain(404, "unknown service");
  if (health->stopping()) co_return plain(503, "stopping");
  std::string lines;
  for (const rpc::HealthState::Line& line : found) {
    lines += "\n" + harmless(line.name) + ": " +
             (line.outcome ? "OK"
              : details    ? harmless(line.outcome.error().text)
                           : std::string("not ready"));
  }
  const bool ready = status == HealthStatus::serving;
  co_return plain(ready ? 200 : 503, (ready ? "OK" : "not ready") + lines);
}

// Samples the counters once a second until the server stops.
struct Sampler {
  Task<void> operator()(Background background) const {
    Loop& loop = *Loop::current();
    while (!background.stopping.stop_requested()) {
      try {
        state->trends.sample(state->server, loop.now());
      } catch (const std::bad_alloc&) {  // The trends lack one sample.
      }
      static_cast<void>(co_await loop.sleep(std::chrono::seconds(1), background.stopping));
    }
  }
  State state;
};

}  // namespace

const std::vector<PageName>& page_names() {
  static const std::vector<PageName> names = {
      {"/", "Overview", "This page."},
      {"/status", "Status", "Methods: rate, errors, latency, trend."},
      {"/connections", "Connections", "Peers, protocols, transports, and why a better transport is not used."},
      {"/channels", "Channels", "Names that this program calls, their endpoints, and why each gets calls or none."},
      {"/calls", "Calls", "Calls in flight, the oldest first."},
      {"/traces", "Traces", "Recorded calls: the latest, the slowest, and each trace as a tree."},
      {"/loops", "Loops", "Utilisation, lengths of ticks, and the method that held a loop for the longest time."},
      {"/memory", "Memory", "Budgets of received data, caches of threads, and the process."},
      {"/rdma", "RDMA", "Devices, ports and their counters."},
      {"/profile", "Profile", "Processor time, waits and memory by function: flame graphs, and files for other tools."},
      {"/options", "Options", "Every option with its value and default; some can be changed."},
      {"/log", "Log", "The latest lines, and the level."},
      {"/version", "Version", "The build, the process, protocols and transports."},
  };
  return names;
}

std::string client_of(const HttpRequest& request) {
  const Identity& identity = request.identity();
  return identity ? identity.text() + " at " + request.peer() : request.peer();
}

HttpResponse html_response(const Document& document, const PagesOptions& options) {
  HttpResponse response = plain(200, {});
  const std::string nonce = new_change_token();
  response.body = render_html(document, options.title, nonce);
  response.content_type = "text/html; charset=utf-8";
  response.headers.emplace_back("Content-Security-Policy",
                                "default-src 'none'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
                                "frame-ancestors 'none'; style-src 'nonce-" +
                                    nonce + "'; script-src 'nonce-" + nonce + "'");
  response.headers.emplace_back("X-Frame-Options", "DENY");
  response.headers.emplace_back("Referrer-Policy", "same-origin");
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

std::uint64_t number_of(HttpRequest& request, std::string_view name, std::uint64_t otherwise) {
  const std::string text = query_of(request.query(), name);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return text.empty() || error != std::errc() || end != text.data() + text.size() ? otherwise : value;
}

std::string silent_note(const std::vector<std::size_t>& loops) {
  std::string note;
  for (const std::size_t loop : loops) note += (note.empty() ? "No answer from loop " : ", ") + std::to_string(loop);
  return note.empty() ? note : note + ": something blocks it; see /loops and /log.";
}

}  // namespace observe

std::string new_change_token() {
  std::string text;
  for (int i = 0; i < 2; ++i) {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), kernel_random(), 16).ptr;
    const auto size = static_cast<std::size_t>(end - digits.data());
    text.append(digits.size() - size, '0').append(digits.data(), size);
  }
  return text;
}

void enable_pages(Server& server, PagesOptions options, Http http) {
  using namespace observe;
  auto state = std::make_shared<PageState>(server, std::move(options));
  state->collecting = collect_metrics(state->metrics, server);
  state->machine = state->metrics.collect(write_machine_metrics);
  add_page_options(server, state->options);
  for (const HealthReporter& reporter : state->options.reporters) ServerHealth(server).add(reporter);
  const auto page = [&](std::string_view path, Builder build) {
    http.operator_route("GET", path,
                        [state, build](HttpRequest& request) { return serve_page(state, build, request); });
  };
  const auto change = [&](std::string_view path, std::string back, Change what) {
    http.operator_route("POST", path,
                        [state, what, back](HttpRequest& request) { return serve_change(state, what, back, request); });
  };
  const PagesOptions& given = state->options;
  if (given.pages != PageAccess::off) {
    page("/", index_page);
    page("/status", status_page);
    page("/connections", connections_page);
    page("/channels", channels_page);
    page("/calls", calls_page);
    page("/traces", traces_page);
    page("/loops", loops_page);
    page("/memory", memory_page);
    page("/rdma", rdma_page);
    page("/profile", profile_page);
    page("/options", options_page);
    page("/log", log_page);
    page("/version", version_page);
    for (const ApplicationPage& own : given.application) {
      http.operator_route("GET", own.path,
                          [state, &own](HttpRequest& request) { return serve_application_page(state, own, request); });
    }
    if (given.changes != PageAccess::off) {
      change("/calls/cancel", "/calls", cancel_call);
      change("/options/change", "/options", change_option_by_post);
      if (given.log) change("/log/level", "/log", set_log_level);
      const auto profile = [&](std::string_view path, TakeProfile take) {
        http.operator_route("GET", path,
                            [state, take](HttpRequest& request) { return serve_profile(state, take, request); });
      };
      profile("/profile/cpu", take_cpu_profile);
      profile("/profile/offcpu", take_wait_profile);
      profile("/profile/allocations", take_allocation_profile);
      profile("/profile/heap", take_heap_profile);
      if (given.recorder) {
        http.operator_route("POST", "/record", [state](HttpRequest& request) { return serve_record(state, request); });
      }
    }
    if (const Result<void> sampled = server.spawn(Sampler{state}); !sampled) {
      throw std::logic_error("hawser: enable_pages(): " + sampled.error().text);
    }
  }
  if (given.metrics != PageAccess::off) {
    http.operator_route("GET", "/metrics", [state](HttpRequest& request) { return serve_metrics(state, request); });
  }
  if (given.health != PageAccess::off) {
    http.operator_route("GET", "/health/live", [state](HttpRequest& request) { return serve_live(state, request); });
    for (const std::string_view path : {"/health", "/health/ready"}) {
      http.operator_route("GET", path, [state](HttpRequest& request) { return serve_ready(state, request); });
    }
  }
  server.enable(http);
}

}  // namespace hawser
