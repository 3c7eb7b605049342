#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "hawser/pages.h"
#include "observe/access.h"
#include "observe/document.h"
#include "observe/trends.h"

namespace hawser::observe {

// Bounds the lines about refused changes, which clients cause. Any thread.
class AuditLimit {
 public:
  static constexpr unsigned lines_per_second_max = 20;

  // True if one more line may be written in this second.
  bool take() noexcept {
    const std::int64_t now =
        std::chrono::floor<std::chrono::seconds>(std::chrono::steady_clock::now()).time_since_epoch().count();
    if (second_.exchange(now, std::memory_order_relaxed) != now) lines_.store(0, std::memory_order_relaxed);
    return lines_.fetch_add(1, std::memory_order_relaxed) < lines_per_second_max;
  }

 private:
  std::atomic<std::int64_t> second_{0};
  std::atomic<unsigned> lines_{0};
};

// State that the pages of a server share. The routes own it, so it ends with the server.
struct PageState {
  PageState(Server& of, PagesOptions given) : server(of), options(std::move(given)), token(change_token_of(options)) {}

  Server& server;
  const PagesOptions options;
  const std::string token;  // A change needs it. Empty: the server has none.
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  MetricRegistry metrics{4000};
  std::shared_ptr<void> collecting;  // The server's metrics in `metrics`.
  std::shared_ptr<void> machine;     // Metrics of the process and its machine, there too.
  Trends trends;
  AuditLimit refusals;
};

// Rows of a page.
inline constexpr std::size_t rows_max = 100;

// Builds a page. On a loop of the server.
using Builder = Task<Document> (*)(PageState& state, HttpRequest& request);

Task<Document> index_page(PageState& state, HttpRequest& request);
Task<Document> status_page(PageState& state, HttpRequest& request);
Task<Document> connections_page(PageState& state, HttpRequest& request);
Task<Document> channels_page(PageState& state, HttpRequest& request);
Task<Document> calls_page(PageState& state, HttpRequest& request);
Task<Document> traces_page(PageState& state, HttpRequest& request);
Task<Document> loops_page(PageState& state, HttpRequest& request);
Task<Document> memory_page(PageState& state, HttpRequest& request);
Task<Document> rdma_page(PageState& state, HttpRequest& request);
Task<Document> options_page(PageState& state, HttpRequest& request);
Task<Document> log_page(PageState& state, HttpRequest& request);
Task<Document> profile_page(PageState& state, HttpRequest& request);
Task<Document> version_page(PageState& state, HttpRequest& request);

Document application_page(const ApplicationPage& page, const HttpRequest& request);

// Routes that change something, after POST. They return a line for the operator.
using Change = Task<Result<std::string>> (*)(PageState& state, HttpRequest& request);
Task<Result<std::string>> cancel_call(PageState& state, HttpRequest& request);
Task<Result<std::string>> set_log_level(PageState& state, HttpRequest& request);
Task<Result<std::string>> change_option_by_post(PageState& state, HttpRequest& request);

// Makes the level of the log and values of the tracer options of the server.
void add_page_options(Server& server, const PagesOptions& options);
// The identity, if it is known, and the address of a client.
std::string client_of(const HttpRequest& request);

// Profiles of the process: GET /profile/... Access has been checked.
Task<HttpResponse> take_cpu_profile(PageState& state, HttpRequest& request);
Task<HttpResponse> take_wait_profile(PageState& state, HttpRequest& request);
Task<HttpResponse> take_allocation_profile(PageState& state, HttpRequest& request);
Task<HttpResponse> take_heap_profile(PageState& state, HttpRequest& request);

// The answer that shows a page in a browser.
HttpResponse html_response(const Document& document, const PagesOptions& options);

// The value of `name` in the query as a number; `otherwise` if it is missing or none.
std::uint64_t number_of(HttpRequest& request, std::string_view name, std::uint64_t otherwise);
// Loops that did not answer, as a note; empty if all did.
std::string silent_note(const std::vector<std::size_t>& loops);

}  // namespace hawser::observe
