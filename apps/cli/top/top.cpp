#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/try.h"
#include "cli/call/outcome.h"
#include "cli/call/server_name.h"
#include "cli/command.h"
#include "cli/top/sample.h"
#include "cli/top/screen.h"
#include "cli/top/signals.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"

namespace hawser::cli {
namespace {

using nlohmann::json;

// Parts of a long table that are read for a sample, with 100 rows each.
constexpr int parts_max = 10;
// Bytes of a part. As a tree of values it takes up to 50 times that memory.
constexpr std::size_t page_bytes_max = std::size_t{4} << 20;

struct TopOptions {
  std::string address;
  std::shared_ptr<transport::ClientSecurity> security = {};
  double interval_s = 1;
  double timeout_s = 5;
  std::string order = "rate";
  unsigned rows = 40;
  bool once = false;
  bool json = false;
};

TopOrder order_of(const std::string& name) {
  if (name == "calls") return TopOrder::calls;
  if (name == "errors") return TopOrder::errors;
  return name == "latency" ? TopOrder::latency : TopOrder::rate;
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find('\n'), std::size_t{200})));
}

// Reads the pages of a server.
class Pages {
 public:
  Pages(Loop& loop, const TopOptions& options, std::stop_token ended)
      : client_(loop, {.body_bytes_max = page_bytes_max, .security = options.security}),
        options_(options),
        ended_(std::move(ended)) {}

  Task<Result<TopSample>> sample() {
    TopSample all;
    for (const Page& page :
         {Page{"/status", "methods_next", add_status}, Page{"/connections", "connections_next", add_connections},
          Page{"/loops", "", add_loops}}) {
      CO_TRY(co_await read(page, all));
    }
    co_return all;
  }

 private:
  struct Page {
    const char* path;
    const char* next;  // Key of the path of the next part.
    bool (*add)(TopSample& sample, const json& page);
  };

  Task<Result<void>> read(Page page, TopSample& all) {
    std::string path = page.path;
    for (int part = 0; part < parts_max && !path.empty(); ++part) {
      CO_TRY(const std::string& body, co_await fetch(path));
      const json parsed = json::parse(body, nullptr, false);
      if (!page.add(all, parsed)) {
        co_return fail(ErrorCode::protocol_error, fmt::format("{} answers {} with something else than the page of a "
                                                              "Hawser server: is it another server?",
                                                              options_.address, page.path));
      }
      const auto next = parsed.find(page.next);
      path = next != parsed.end() && next->is_string() ? next->get<std::string>() : std::string();
      if (!path.starts_with(page.path)) path.clear();
    }
    co_return Result<void>();
  }

  Task<Result<std::string>> fetch(std::string path) {
    HttpClientRequest request;
    // The pages are refused to other names of this machine.
    request.url = programs::scheme_of(options_.security) + "://localhost" + path +
                  (path.find('?') == std::string::npos ? "?" : "&") + "format=json";
    request.address = options_.address;
    request.timeout = duration_of(options_.timeout_s);
    request.token = ended_;
    Result<HttpClientResponse> response = co_await client_.send(std::move(request));
    if (!response) {
      Error error = response.error();
      error.text = fmt::format("{} does not answer {}: {}", options_.address, path, error.text);
      if (error.code == ErrorCode::protocol_error) error.text += ": is it another server?";
      co_return fail(std::move(error));
    }
    if (response->status == 403) {
      co_return fail(ErrorCode::permission_denied,
                     fmt::format("{} refuses {}: {}", options_.address, path, first_line(response->body)));
    }
    if (response->status != 200) {
      co_return fail(ErrorCode::protocol_error,
                     fmt::format("{} answers {} with HTTP status {}: it is not a Hawser server, or it has no pages "
                                 "(enable_pages())",
                                 options_.address, path, response->status));
    }
    co_return std::move(response->body);
  }

  HttpClient client_;
  const TopOptions& options_;
  const std::stop_token ended_;
};

// Used on the loop's thread.
class Top {
 public:
  Top(Loop& loop, const TopOptions& options) : loop_(loop), options_(options) {}

  void end() { ended_.request_stop(); }
  void resized() { draw(); }

  Task<int> run() {
    const Output output{.command = "top", .json = options_.json};
    Pages pages(loop_, options_, ended_.get_token());
    std::optional<TopSample> before;
    Time at{};
    while (!ended_.stop_requested()) {
      const Time begin = loop_.now();
      Result<TopSample> sample = co_await pages.sample();
      if (ended_.stop_requested()) break;
      if (!sample && !screen_) co_return output.error(sample.error());
      if (!sample) {
        // A server that restarts is followed.
        complaint_ = sample.error().text;
        before.reset();
        draw();
      } else {
        complaint_.clear();
        if (before) {
          add_rates(*sample, *before, std::chrono::duration<double>(begin - at).count());
          before = *sample;
          sort(*sample, order_of(options_.order));
          shown_ = std::move(*sample);
          show(output);
          if (options_.once) co_return succeeded;
        } else {
          before = std::move(*sample);
          // Now it is known that there is something to show.
          if (!screen_ && !options_.once && !options_.json && Screen::available()) screen_.emplace();
        }
        at = begin;
      }
      static_cast<void>(co_await loop_.sleep(duration_of(options_.interval_s), ended_.get_token()));
    }
    co_return succeeded;
  }

 private:
  void show(const Output& output) {
    if (options_.json) return output.line(to_json(*shown_));
    if (screen_) return draw();
    // The first line is that of the server.
    const TopSize size{120, options_.rows};
    std::string text = blocks_++ == 0 ? "" : "\n";
    for (const std::string& line : to_lines(*shown_, options_.address, size)) text += line + "\n";
    text.pop_back();
    output.line(text);
  }
  void draw() {
    if (!screen_) return;
    const TopSize size = Screen::size();
    std::vector<std::string> lines;
    if (!complaint_.empty()) {
      TopSample none;
      none.status = complaint_;
      lines = to_lines(none, options_.address, {size.columns, 1});
    } else if (shown_) {
      lines = to_lines(*shown_, options_.address, size);
    }
    screen_->draw(lines);
  }

  Loop& loop_;
  const TopOptions& options_;
  std::stop_source ended_;
  std::optional<TopSample> shown_;
  std::string complaint_;  // Why there is no sample; empty if there is one.
  std::optional<Screen> screen_;
  std::size_t blocks_ = 0;
};

// The first endpoint of the name that can be reached: the pages are read from that one.
Task<Result<std::string>> endpoint_of(const TopOptions& options) {
  const Duration timeout = duration_of(options.timeout_s);
  CO_TRY(const std::vector<std::string> addresses, co_await addresses_of(options.address, timeout));
  if (addresses.size() == 1) co_return addresses.front();
  HttpClient client(*Loop::current(), {.security = options.security});
  HttpClientRequest request{.url = programs::scheme_of(options.security) + "://localhost/health", .timeout = timeout};
  CO_TRY(co_await send_to_any(client, addresses, request));
  co_return request.address;
}

int top(TopOptions options) {
  Loop loop;
  Result<std::string> address = loop.run(endpoint_of(options));
  if (!address) return Output{.command = "top"}.error(address.error());
  options.address = std::move(*address);
  Top view(loop, options);
  const CommandSignals signals([&](int number) {
    loop.post([&view, number] {
      if (number == SIGWINCH) {
        view.resized();
      } else {
        view.end();
      }
    });
  });
  return loop.run(view.run());
}

}  // namespace

Run add_top(CLI::App& command) {
  auto options = std::make_shared<TopOptions>();
  command.add_option("address", options->address, address_help)->required();
  command.add_option("--interval", options->interval_s, "Seconds between two samples")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 3600.0));
  command.add_option("--timeout", options->timeout_s, "Seconds for connecting, and for each page")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  programs::add_tls_client_options(command, options->address, options->security);
  command.add_option("--sort", options->order, "Order of the methods")
      ->capture_default_str()
      ->check(CLI::IsMember({"rate", "calls", "errors", "latency"}));
  command.add_option("--rows", options->rows, "Lines of each view, where the output is not a terminal")
      ->capture_default_str()
      ->check(CLI::Range(10U, 10'000U));
  command.add_flag("--once", options->once, "Show one view and end");
  command.add_flag("--json", options->json, "Print each sample as a line of JSON");
  command.footer(
      "Rates are those between two samples, so the first view takes an interval. Ctrl-C ends the command with status "
      "0. Exit status: 1 if the server refuses its pages or is another server, 2 for wrong options, 3 if there is no "
      "connection, 4 if the time was over. On a terminal, a server that has been seen is waited for.");
  return [options] { return top(*options); };
}

}  // namespace hawser::cli
