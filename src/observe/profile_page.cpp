#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "exec/idle_functions.h"
#include "heap/allocation_hook.h"
#include "observe/page_state.h"
#include "observe/profile_sources.h"
#include "rpc/server/inspector.h"

namespace hawser::observe {
namespace {

constexpr std::uint64_t seconds_max = 60;
constexpr std::uint64_t seconds_default = 5;
constexpr std::uint64_t hertz_max = 1000;
constexpr std::uint64_t hertz_default = 99;  // Not in step with work that is done each 10 ms.
constexpr std::uint64_t interval_min = 1024;
constexpr std::uint64_t interval_max = std::uint64_t{1} << 30;
constexpr std::uint64_t interval_default = std::uint64_t{512} << 10;
constexpr std::size_t functions_max = 40;  // Rows of the table below a flame graph.

struct ProfileForm {
  std::string_view name;
  std::string_view content_type;
  std::string (*render)(const Profile& profile);
};

constexpr ProfileForm forms[] = {
    {"html", "text/html; charset=utf-8", flame_svg},
    {"svg", "image/svg+xml", flame_svg},
    {"folded", "text/plain; charset=utf-8", folded_text},
    {"pprof", "application/octet-stream", pprof_bytes},
};

struct ProfileKind {
  std::string_view key;
  std::string_view path;
  std::string_view title;
  std::string_view about;
  std::string_view query;  // Further parameters of its links.
};

constexpr ProfileKind kinds[] = {
    {"cpu", "/profile/cpu", "Processor time", "functions that use processors", ""},
    {"waits", "/profile/offcpu", "Waits, without idle threads", "functions in which threads wait", "&idle=0"},
    {"waits_and_idle", "/profile/offcpu", "Waits, all threads", "the same with threads that wait for work", ""},
    {"allocations", "/profile/allocations", "Allocations", "functions that allocate, by bytes", ""},
    {"heap", "/profile/heap", "Memory in use", "what was allocated meanwhile and not freed, by bytes", ""},
};

HttpResponse refused(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(text) + "\n";
  response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  return response;
}

HttpResponse refused(const Error& error) {
  return refused(error.code == ErrorCode::overloaded         ? 409
                 : error.code == ErrorCode::invalid_argument ? 500
                                                             : 503,
                 error.text);
}

// Reads the numbers of a query. A value that is not a number, or out of its range, marks it as wrong.
class ProfileParameters {
 public:
  explicit ProfileParameters(HttpRequest& request) : request_(request) {
    const std::string wanted = query_of(request.query(), "format");
    const std::string_view accept = request.header("accept").value_or("");
    const std::string_view standard = accept.find("text/html") != std::string_view::npos ? "html" : "svg";
    form_ = std::ranges::find(forms, wanted.empty() ? standard : wanted, &ProfileForm::name);
    good_ = form_ != std::end(forms);
  }
  bool has(std::string_view name) const { return !query_of(request_.query(), name).empty(); }
  std::uint64_t number(std::string_view name, std::uint64_t standard, std::uint64_t least, std::uint64_t most) {
    const std::uint64_t value = has(name) ? number_of(request_, name, most + 1) : standard;
    good_ = good_ && value >= least && value <= most;
    query_ += (query_.empty() ? "" : "&") + std::string(name) + "=" + std::to_string(value);
    return value;
  }
  bool good() const noexcept { return good_; }
  const ProfileForm& form() const noexcept { return *form_; }
  const std::string& query() const noexcept { return query_; }

 private:
  HttpRequest& request_;
  const ProfileForm* form_ = nullptr;
  bool good_ = false;
  std::string query_;
};

// One profile of allocations is taken at a time, also of those that the program samples all the time.
class Turn {
 public:
  Turn() noexcept : mine_(!taken.exchange(true)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (mine_) taken.store(false);
  }
  explicit operator bool() const noexcept { return mine_; }

 private:
  static constinit std::atomic<bool> taken;
  const bool mine_;
};
constinit std::atomic<bool> Turn::taken{false};

// The functions with the largest values: of their own, and with what they call.
PageTable functions_of(const Profile& profile) {
  struct Sum {
    std::uint64_t own = 0;
    std::uint64_t all = 0;
  };
  std::map<std::string, Sum> sums;
  std::uint64_t total = 0;
  for (const Profile::Stack& stack : profile.stacks) {
    const std::uint64_t value = stack.values[profile.shown];
    total = profile_sum(total, value);
    if (stack.frames.empty()) continue;
    sums[stack.frames.back()].own = profile_sum(sums[stack.frames.back()].own, value);
    for (const std::string& name : std::set<std::string>(stack.frames.begin(), stack.frames.end())) {
      sums[name].all = profile_sum(sums[name].all, value);
    }
  }
  std::vector<std::pair<std::string, Sum>> ordered(sums.begin(), sums.end());
  std::ranges::sort(ordered, [](const auto& a, const auto& b) {
    return std::pair(a.second.own, a.second.all) > std::pair(b.second.own, b.second.all);
  });
  PageTable table{
      .key = "functions",
      .title = "Functions",
      .columns = {{"own", "own", true}, {"share", "%", true}, {"all", "with callees", true}, {"name", "function"}},
      .note = profile.caption};
  const std::string_view unit = profile.kinds[profile.shown].unit;
  for (const auto& [name, sum] : ordered) {
    if (table.rows.size() == functions_max || sum.all == 0) break;
    table.rows.push_back(
        {value_text(sum.own, unit),
         decimal(100 * static_cast<double>(sum.own) / static_cast<double>(std::max<std::uint64_t>(total, 1))),
         value_text(sum.all, unit), name});
  }
  return table;
}

struct Rendered {
  std::string body;
  PageTable functions = {};  // For HTML.
};

// Builds the profile and answers with it. `build` runs on a thread that may block.
Task<HttpResponse> answer(PageState& state, HttpRequest& request, const ProfileParameters& parameters,
                          std::string_view title, std::function<Profile()> build) {
  const ProfileForm* const form = &parameters.form();
  const bool html = form->name == "html";
  auto work = [build = std::move(build), form, html, began = std::chrono::system_clock::now()] {
    Profile profile = build();
    profile.begin = began - std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                std::chrono::duration<double>(profile.seconds));
    Rendered rendered{.body = form->render(profile)};
    if (html) rendered.functions = functions_of(profile);
    return rendered;
  };
  Rendered rendered;
  // The loops of a server wait for their threads before it ends; a loop of the caller may not.
  if (!rpc::Inspector::on_callers_loop(state.server)) {
    Result<Rendered> made = co_await request.loop().offload(std::move(work));
    if (!made) co_return refused(503, made.error().text);
    rendered = std::move(*made);
  } else {
    rendered = work();
  }
  if (html) {
    Document document{.path = "/profile", .title = std::string(title), .updates = false};
    document.query = parameters.query();
    document.figure = std::move(rendered.body);
    document.formats_title = "Take another one as";
    document.formats = {"html", "svg", "folded", "pprof"};
    document.tables.push_back(std::move(rendered.functions));
    co_return html_response(document, state.options);
  }
  HttpResponse response;
  response.content_type = std::string(form->content_type);
  response.headers = {{"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"}};
  response.body = std::move(rendered.body);
  co_return response;
}

// Waits until the profile has its length, or the request or the server ends. Returns the seconds.
Task<double> pass(HttpRequest& request, std::uint64_t seconds) {
  const Time begin = request.loop().now();
  static_cast<void>(co_await request.loop().sleep(std::chrono::seconds(seconds), request.token()));
  co_return std::chrono::duration<double>(request.loop().now() - begin).count();
}

// A process with thousands of threads takes tens of milliseconds, so a thread that may block begins the profile.
Task<Result<std::unique_ptr<CpuSampler>>> begin_apart(PageState& state, HttpRequest& request, unsigned hertz) {
  if (rpc::Inspector::on_callers_loop(state.server)) co_return CpuSampler::begin(hertz);
  Result<Result<std::unique_ptr<CpuSampler>>> begun =
      co_await request.loop().offload([hertz] { return CpuSampler::begin(hertz); });
  CO_TRY(begun);
  co_return std::move(*begun);
}

// Why the program cannot take profiles of allocations; empty if it can.
std::string heap_refusal() {
  switch (detail::allocation_hook::operators.load()) {
    case detail::allocation_hook::Operators::present: break;
    case detail::allocation_hook::Operators::absent:
      return "this program does not link the component hawser::heap_profile, which observes operator new and delete: "
             "link it (docs/install.md)";
    case detail::allocation_hook::Operators::sanitized:
      return "this program was built with a sanitizer, whose allocator is not replaced: take the profile of a build "
             "without one";
  }
  return {};
}

// Returns what was recorded until now. Thousands of stacks take milliseconds, so a thread that may block collects them.
Task<Result<AllocationSampler::Report>> report_apart(PageState& state, HttpRequest& request) {
  if (rpc::Inspector::on_callers_loop(state.server)) co_return AllocationSampler::report();
  co_return co_await request.loop().offload([] { return AllocationSampler::report(); });
}

constexpr std::string_view heap_limits =
    "a profile of allocations has 1 to 60 seconds, an interval of 1024 to 1073741824 bytes, and the format html, svg, "
    "folded or pprof";

Task<HttpResponse> allocations_answer(PageState& state, HttpRequest& request, AllocationView view) {
  ProfileParameters parameters(request);
  const bool running = AllocationSampler::continuous();
  const bool live = view == AllocationView::live;
  const bool at_once = live && running && !parameters.has("seconds");
  const std::uint64_t seconds = at_once ? 0 : parameters.number("seconds", seconds_default, 1, seconds_max);
  const std::uint64_t interval =
      running ? 0 : parameters.number("interval", interval_default, interval_min, interval_max);
  if (!parameters.good()) co_return refused(400, std::string(heap_limits));
  if (running && parameters.has("interval")) {
    co_return refused(400,
                      "the program samples allocations all the time, with an interval of its own: leave out interval");
  }
  if (std::string why = heap_refusal(); !why.empty()) co_return refused(501, std::move(why));
  const Turn turn;
  if (!turn) co_return refused(409, "a profile of allocations is being taken: wait until it has ended");
  std::shared_ptr<AllocationSampler> sampler;
  auto before = std::make_shared<AllocationSampler::Report>();
  if (!running) {
    Result<std::unique_ptr<AllocationSampler>> begun =
        AllocationSampler::begin({.interval_bytes = static_cast<std::size_t>(interval),
                                  .live_max = state.options.heap_profile_live_max,
                                  .stacks_max = state.options.heap_profile_stacks_max});
    if (!begun) co_return refused(begun.error());
    sampler = std::move(*begun);
  } else if (!live) {
    Result<AllocationSampler::Report> made = co_await report_apart(state, request);
    if (!made) co_return refused(503, made.error().text);
    *before = std::move(*made);
  }
  if (!at_once) {
    static_cast<void>(co_await pass(request, seconds));
  }
  std::function<Profile()> build = [sampler = std::move(sampler), before, view]() mutable {
    const AllocationSampler::Report after = AllocationSampler::report();
    sampler.reset();  // The work of this page is not a part of the profile.
    return allocation_profile(*before, after, view);
  };
  co_return co_await answer(state, request, parameters, live ? "Memory in use" : "Allocations", std::move(build));
}

}  // namespace

Task<Document> profile_page(PageState&, HttpRequest&) {
  Document document{.path = "/profile", .title = "Profile", .updates = false};
  const std::string no_heap = heap_refusal();
  for (const ProfileKind& kind : kinds) {
    PageTable table{.key = std::string(kind.key),
                    .title = std::string(kind.title) + ": " + std::string(kind.about),
                    .columns = {{"seconds", "seconds", true},
                                {"html", "page"},
                                {"svg", "flame graph"},
                                {"folded", "folded"},
                                {"pprof", "pprof"}}};
    const bool of_heap = kind.path == "/profile/allocations" || kind.path == "/profile/heap";
    if (of_heap && !no_heap.empty()) {
      table.note = no_heap;
      document.tables.push_back(std::move(table));
      continue;
    }
    for (const std::uint64_t seconds : {1U, 5U, 30U}) {
      std::vector<PageCell> row{number(seconds)};
      for (const ProfileForm& form : forms) {
        PageCell cell(form.name);
        cell.link = std::string(kind.path) + "?seconds=" + std::to_string(seconds) + std::string(kind.query) +
                    "&format=" + std::string(form.name);
        row.push_back(std::move(cell));
      }
      table.rows.push_back(std::move(row));
    }
    document.tables.push_back(std::move(table));
  }
  document.tables.back().note +=
      std::string(document.tables.back().note.empty() ? "" : ". ") +
      "Profiles are for clients of this machine. One profile of each kind at a time. /calls shows what calls wait for.";
  co_return document;
}

Task<HttpResponse> take_cpu_profile(PageState& state, HttpRequest& request) {
  ProfileParameters parameters(request);
  const std::uint64_t seconds = parameters.number("seconds", seconds_default, 1, seconds_max);
  const auto hertz = static_cast<unsigned>(parameters.number("hertz", hertz_default, 1, hertz_max));
  if (!parameters.good()) {
    co_return refused(400, "a profile has 1 to 60 seconds, 1 to 1000 hertz, and the format html, svg, folded or pprof");
  }
  Result<std::unique_ptr<CpuSampler>> begun = co_await begin_apart(state, request, hertz);
  if (!begun) co_return refused(begun.error());
  const std::shared_ptr<CpuSampler> sampler = std::move(*begun);
  const double passed = co_await pass(request, seconds);
  sampler->end();  // The thread that waits for it may be busy for a long time.
  std::function<Profile()> build = [sampler, hertz, passed] {
    sampler->stop();
    return cpu_profile(*sampler, hertz, passed);
  };
  co_return co_await answer(state, request, parameters, "Processor time", std::move(build));
}

Task<HttpResponse> take_wait_profile(PageState& state, HttpRequest& request) {
  ProfileParameters parameters(request);
  const std::uint64_t seconds = parameters.number("seconds", seconds_default, 1, seconds_max);
  const auto hertz = static_cast<unsigned>(parameters.number("hertz", hertz_default, 1, hertz_max));
  const bool with_idle = parameters.number("idle", 1, 0, 1) == 1;
  if (!parameters.good()) {
    co_return refused(400,
                      "a profile of waits has 1 to 60 seconds, 1 to 1000 hertz, idle 0 or 1, and the format html, svg, "
                      "folded or pprof");
  }
  Result<std::unique_ptr<WaitSampler>> begun = WaitSampler::begin(hertz, exec::idle_functions());
  if (!begun) co_return refused(begun.error());
  std::shared_ptr<WaitSampler> sampler = std::move(*begun);
  const double passed = co_await pass(request, seconds);
  sampler->end();  // The thread that waits for it may be busy for a long time.
  std::function<Profile()> build = [sampler = std::move(sampler), hertz, passed, with_idle] {
    sampler->stop();
    return wait_profile(*sampler, hertz, passed, with_idle);
  };
  co_return co_await answer(state, request, parameters, "Waits", std::move(build));
}

Task<HttpResponse> take_allocation_profile(PageState& state, HttpRequest& request) {
  return allocations_answer(state, request, AllocationView::allocated);
}

Task<HttpResponse> take_heap_profile(PageState& state, HttpRequest& request) {
  return allocations_answer(state, request, AllocationView::live);
}

}  // namespace hawser::observe
