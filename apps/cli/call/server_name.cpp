#include "cli/call/server_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <utility>

#include "base/try.h"
#include "cluster/route_choice.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/sync.h"

namespace hawser::cli {
namespace {

constexpr std::size_t endpoints_tried_max = 8;

// "dns:53" is the host "dns".
bool is_name(std::string_view given, const std::vector<NamingScheme>& schemes) {
  const std::size_t colon = given.find(':');
  if (colon == std::string_view::npos) return false;
  if (given.find_first_not_of("0123456789", colon + 1) == std::string_view::npos) return false;
  return std::ranges::find(schemes, given.substr(0, colon), &NamingScheme::name) != schemes.end();
}

}  // namespace

std::string note_on_routes(std::string_view name, const NamingRoutes* routes) {
  if (routes == nullptr || routes->clusters.size() < 2) return {};
  return fmt::format("the routes of {} lead to {} clusters: the endpoints of its main cluster alone, {}, are used",
                     name, routes->clusters.size(), cluster::shown_cluster(routes->clusters[routes->main]));
}

Task<Result<std::vector<std::string>>> addresses_of(std::string given, Duration timeout, bool notes) {
  std::vector<NamingScheme> schemes = naming_schemes();
  add_http_registries(schemes);
  if (!is_name(given, schemes)) co_return std::vector<std::string>{given};
  Loop& loop = *Loop::current();
  Event changed;
  CO_TRY(const std::unique_ptr<Naming> naming, Naming::open(loop, given, schemes, [&changed] { changed.set(); }));
  const NamingState& state = naming->state();
  const Time end = loop.after(timeout);
  while (state.version == 0 && loop.now() < end) {
    changed.reset();
    std::stop_source late;
    Scope timer;
    timer.spawn([](Loop& on, Time until, std::stop_source stop) -> Task<void> {
      static_cast<void>(co_await on.sleep(until - on.now()));
      stop.request_stop();
    }(loop, end, late));
    static_cast<void>(co_await changed.wait(late.get_token()));
  }
  if (state.version == 0) {
    co_return fail(state.error ? *state.error
                               : Error::of_call(ErrorCode::deadline_exceeded, "no list of endpoints of " + given));
  }
  if (const std::string note = note_on_routes(given, state.routes.get()); notes && !note.empty()) {
    fmt::print(stderr, "hawser: {}\n", note);
  }
  std::multimap<std::uint32_t, std::string> by_priority;  // Endpoints of one priority stay in order.
  for (const Endpoint& one : state.endpoints) by_priority.emplace(one.priority, one.address);
  std::vector<std::string> addresses;
  for (auto& [priority, address] : by_priority) addresses.push_back(std::move(address));
  co_return addresses;
}

Task<Result<std::unique_ptr<CallPeer>>> connect_peer(PeerOptions options, std::size_t first) {
  CO_TRY(const std::vector<std::string> addresses, co_await addresses_of(options.address, options.timeout, first == 0));
  for (std::size_t tried = 1;; ++tried) {
    options.address = addresses[(first + tried - 1) % addresses.size()];
    CO_TRY(std::unique_ptr<CallPeer> peer, make_peer(options));
    Result<void> connected = co_await peer->connect();
    if (connected) co_return peer;
    if (tried == std::min(addresses.size(), endpoints_tried_max)) co_return fail(std::move(connected.error()));
  }
}

Task<Result<HttpClientResponse>> send_to_any(HttpClient& client, const std::vector<std::string>& addresses,
                                             HttpClientRequest& request) {
  for (std::size_t tried = 1;; ++tried) {
    request.address = addresses[tried - 1];
    Result<HttpClientResponse> response = co_await client.send(request);
    if (response || !response.error().not_executed()) co_return response;
    if (tried == std::min(addresses.size(), endpoints_tried_max)) co_return response;
  }
}

}  // namespace hawser::cli
