#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hawser/cluster_monitor.h"
#include "hawser/error.h"
#include "hawser/health.h"
#include "hawser/http.h"
#include "hawser/metrics.h"
#include "hawser/recent_log.h"
#include "hawser/recorder.h"
#include "hawser/server.h"
#include "hawser/tracing.h"

// Pages about a running server, and its metrics, over HTTP on its port. Component hawser::observe.
// docs/operations.md says which page answers which question.
//
//   hawser::enable_pages(server);                 // Then http://ADDRESS/ in a browser, or with curl.
//   hawser::enable_pages(server, {.metrics = hawser::PageAccess::all});   // A scraper on another machine.
namespace hawser {

// Who may ask for a page.
enum class PageAccess : std::uint8_t {
  off,       // Nobody: the page does not exist.
  loopback,  // Clients of this machine: loopback addresses and Unix sockets. Refused are requests with a field by which
             // proxies name their client (Forwarded, Via, X-Forwarded*, X-Real-*, *-Client-IP and the like), and those
             // whose Host is neither an IP address, localhost nor in PagesOptions::hosts. A proxy on this machine that
             // adds no such field, such as nginx as it is delivered, looks like a client of this machine: use `off`
             // behind it. The list of fields cannot be complete, so this is enough for reading only.
  all,       // Everybody who reaches the port.
};

// A page of the application: a table, with the access and the formats of the other pages, to which the overview has a
// link. Texts may come from peers.
struct ApplicationPage {
  using Value = std::variant<std::string, std::uint64_t>;

  std::string path;                  // Such as "/volumes". It is a std::logic_error if another page or route has it.
  std::string title;                 // Such as "Volumes".
  std::string about;                 // A line for the overview.
  std::vector<std::string> columns;  // Names in JSON, such as "read_bytes": "read bytes" is shown.
  // The rows, with a value for each column. Called on the loops; must not block.
  std::function<std::vector<std::vector<Value>>(const HttpRequest&)> rows;
};

struct PagesOptions {
  PageAccess pages = PageAccess::loopback;
  PageAccess metrics = PageAccess::loopback;  // GET /metrics
  // GET /health, /health/live and /health/ready. With `all`, others than those who may see the pages learn the status
  // and the names of the reporters, not their errors.
  PageAccess health = PageAccess::all;
  // Changes: cancelling a call, options, the level of the log. They need POST, access to the pages, no sign of a
  // request that another site has caused (Origin, Sec-Fetch-Site), and a proof: the token, or an identity that
  // `operators` accepts. POST /record needs the same. `off` also switches profiles and POST /record off.
  PageAccess changes = PageAccess::loopback;
  // The token that a change needs: the header field Hawser-Token, or the field `token` of the form. At least 16 bytes;
  // new_change_token() makes one. Empty: change_token_file is used; without it, no token is accepted.
  std::string change_token = {};
  // The file of the token. If it exists, its first line is the token, and nobody but its owner may have access to it.
  // Otherwise enable_pages() makes it (mode 0600), with a new token. It is read once.
  std::string change_token_file = {};
  // Who may change without the token. Empty: processes of the server's own user, and of root, at a Unix socket.
  // hawser/authorization.h has conditions. Called on the loops; must not block.
  std::function<bool(const Identity&)> operators = {};
  std::vector<std::string> hosts = {};  // Names of this machine by which a browser may ask; see PageAccess::loopback.
  std::string title = {};               // Name of the program, for people.
  std::vector<ApplicationPage> application = {};
  // Metrics of the application, shown by /metrics after those of the server. Must outlive the server. Do not
  // collect_metrics() of the same server there.
  const MetricRegistry* registry = nullptr;
  // Clients that have it in ClusterOptions::monitor: for /channels, and their metrics in /metrics. They may have other
  // loops than the server, and end before or after it.
  std::optional<ClusterMonitor> clusters = {};
  std::optional<RecentLog> log = {};           // For /log, and the option log.level of /options.
  std::vector<HealthReporter> reporters = {};  // Are added to the ServerHealth of the server.
  std::optional<Tracer> tracer = {};           // For /traces, and the options tracer.* of /options.
  // For POST /record, by which `hawser record` fetches requests. Only for clients of this machine, whatever `pages` and
  // `changes` are, unless one of them is `off`.
  std::optional<Recorder> recorder = {};
  // Bounds of the profiles of allocations that clients request (component hawser::heap_profile): sampled allocations
  // that are followed until they are freed, 1 to 4,194,304; and different stacks, 1 to 262,144. HeapProfileOptions
  // gives their sizes in bytes. The page has the number of allocations and stacks for which there was no room.
  std::size_t heap_profile_live_max = 65'536;
  std::size_t heap_profile_stacks_max = 8'192;
};

// Enables HTTP on the server's port with the pages, and with the routes of `http`. A route that `http` has already is a
// std::logic_error. Call it before run() or start(), and once.
// Throws std::invalid_argument if the token is too short, and std::runtime_error if its file cannot be used.
void enable_pages(Server& server, PagesOptions options = {}, Http http = Http());

// A token of 128 random bits, as hexadecimal digits.
std::string new_change_token();

}  // namespace hawser
