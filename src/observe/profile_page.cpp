#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cpu_sampler.h"
#include "base/symbols.h"
#include "observe/page_state.h"
#include "observe/profile.h"
#include "rpc/server/inspector.h"

namespace hawser::observe {
namespace {

constexpr std::uint64_t seconds_max = 60;
constexpr std::uint64_t seconds_default = 5;
constexpr std::uint64_t hertz_max = 1000;
constexpr std::uint64_t hertz_default = 99;  // Not in step with work that is done each 10 ms.

struct ProfileForm {
  std::string_view name;
  std::string_view content_type;
  std::string (*render)(const Profile& profile);
};

constexpr ProfileForm forms[] = {
    {"svg", "image/svg+xml", flame_svg},
    {"folded", "text/plain; charset=utf-8", folded_text},
    {"pprof", "application/octet-stream", pprof_bytes},
};

HttpResponse refused(int status, std::string text) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(text) + "\n";
  return response;
}

// Names the functions and adds up equal stacks.
void add_stacks(Profile& profile, const CpuSampler& sampler) {
  Symbols symbols;
  std::map<const void*, std::string> names;
  const auto name_of = [&](const void* address) -> const std::string& {
    const auto [at, added] = names.emplace(address, std::string());
    if (added) at->second = symbols.name(address);
    return at->second;
  };
  std::map<std::pair<std::int32_t, std::vector<std::string>>, std::uint64_t> counted;
  for (const CpuSampler::Sample& sample : sampler.samples()) {
    std::vector<std::string> frames;
    for (std::uint32_t i = sample.depth; i-- > 0;) {
      // A return address may lie behind the end of the function that called.
      const auto* const address = static_cast<const char*>(sample.frames[i]);
      frames.push_back(name_of(i == 0 ? address : address - 1));
    }
    ++counted[{sample.thread, std::move(frames)}];
  }
  for (const auto& [key, samples] : counted) {
    profile.stacks.push_back({thread_name(key.first), key.second, samples});
  }
  profile.lost = sampler.lost();
}

}  // namespace

Task<Document> profile_page(PageState&, HttpRequest&) {
  Document document{.path = "/profile", .title = "Profile", .updates = false};
  Table table{
      .key = "profiles",
      .title = "Processor time of all threads",
      .columns = {{"seconds", "seconds", true}, {"svg", "flame graph"}, {"folded", "folded"}, {"pprof", "pprof"}}};
  for (const std::uint64_t seconds : {1U, 5U, 30U}) {
    std::vector<Cell> row{number(seconds)};
    for (const ProfileForm& form : forms) {
      Cell cell(form.name);
      cell.link = "/profile/cpu?seconds=" + std::to_string(seconds) + "&format=" + std::string(form.name);
      row.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(row));
  }
  table.note =
      "curl 'ADDRESS/profile/cpu?seconds=N&hertz=N&format=svg|folded|pprof' takes one, for clients of this machine. "
      "Threads that wait use no processor time and are not seen. One profile at a time.";
  document.tables.push_back(std::move(table));
  co_return document;
}

Task<HttpResponse> take_profile(PageState& state, HttpRequest& request) {
  // 0, which is refused, for what is no number.
  const auto given = [&](std::string_view name, std::uint64_t standard) {
    return query_of(request.query(), name).empty() ? standard : number_of(request, name, 0);
  };
  const std::uint64_t seconds = given("seconds", seconds_default);
  const std::uint64_t hertz = given("hertz", hertz_default);
  const std::string wanted = query_of(request.query(), "format");
  const auto* const form = wanted.empty() ? std::begin(forms) : std::ranges::find(forms, wanted, &ProfileForm::name);
  if (seconds == 0 || seconds > seconds_max || hertz == 0 || hertz > hertz_max || form == std::end(forms)) {
    co_return refused(400, "a profile has 1 to 60 seconds, 1 to 1000 hertz, and the format svg, folded or pprof");
  }
  Profile profile{.begin = std::chrono::system_clock::now(), .hertz = static_cast<unsigned>(hertz)};
  const Time begin = request.loop().now();
  Result<std::unique_ptr<CpuSampler>> begun = CpuSampler::begin(profile.hertz);
  if (!begun) co_return refused(begun.error().code == ErrorCode::overloaded ? 409 : 503, begun.error().text);
  const std::shared_ptr<CpuSampler> sampler = std::move(*begun);
  auto sleep = request.loop().sleep(std::chrono::seconds(seconds), request.token());
  static_cast<void>(co_await std::move(sleep));
  sampler->stop();
  profile.seconds = std::chrono::duration<double>(request.loop().now() - begin).count();
  HttpResponse response;
  response.content_type = std::string(form->content_type);
  response.headers = {{"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"}};
  // Symbol tables of large programs take longer than a tick.
  auto work = [sampler, profile = std::move(profile), form]() mutable {
    add_stacks(profile, *sampler);
    return form->render(profile);
  };
  // The loops of a server wait for their threads before it ends; a loop of the caller may not.
  if (!rpc::Inspector::on_callers_loop(state.server)) {
    auto offloaded = request.loop().offload(hawser::moved(work));
    Result<std::string> text = co_await std::move(offloaded);
    if (!text) co_return refused(503, text.error().text);
    response.body = std::move(*text);
  } else {
    response.body = work();
  }
  co_return response;
}

}  // namespace hawser::observe
