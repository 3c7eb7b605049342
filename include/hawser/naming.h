#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/naming_policy.h"
#include "hawser/time.h"

// A name in place of an address: who serves, and how the list changes. Component hawser::cluster. docs/clusters.md
// describes the schemes.
namespace hawser {

class ServiceConfig;
struct NamingRoutes;

// One server of a name.
struct Endpoint {
  std::string address;         // "host:port", "[ipv6]:port", "unix:/path" or "unix:@name".
  std::uint32_t weight = 1;    // Share of the calls, relative to the other endpoints. 1 to EndpointLimits::weight_max.
  std::uint32_t priority = 0;  // Endpoints of a higher number get calls only if none of a lower number can serve.
  std::string zone = {};
  std::vector<std::pair<std::string, std::string>> tags = {};  // In the order of the source.
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Bounds of a list of endpoints. An endpoint that exceeds one is dropped, a list with too many endpoints is refused.
struct EndpointLimits {
  static constexpr std::size_t endpoints_max = 10'000;
  static constexpr std::size_t address_bytes_max = 256;
  static constexpr std::uint32_t weight_max = 1'000'000;
  static constexpr std::uint32_t priority_max = 127;
  static constexpr std::size_t zone_bytes_max = 64;
  static constexpr std::size_t tags_max = 16;
  static constexpr std::size_t tag_bytes_max = 256;  // Limit of a key, and of a value.
};

// Receives the reports of a NamingSource, on the loop of the source.
class NamingSink {
 public:
  // The whole list as it is now. It may contain anything: the receiver checks it.
  virtual void on_endpoints(std::vector<Endpoint> endpoints) = 0;
  // The same, from a source that keeps the list. Not null.
  virtual void on_shared_endpoints(std::shared_ptr<const std::vector<Endpoint>> endpoints) { on_endpoints(*endpoints); }
  // The list of the last on_endpoints() is still current.
  virtual void on_confirmed() = 0;
  // The source cannot say what the list is. It goes on trying.
  virtual void on_failure(Error error) = 0;
  // The service config of the name (hawser/service_config.h), as JSON. Empty: it has none. An error: it has none that
  // can be used, and the last one stays.
  virtual void on_service_config(Result<std::string> json) { static_cast<void>(json); }
  // The demands of the name replace the earlier ones. They are reported before the list for which they hold.
  virtual void on_policy(NamingPolicy policy) { static_cast<void>(policy); }
  // The routes of the name (hawser/naming_routes.h) replace the earlier ones. Not null. They are reported before the
  // policy and the list of their main cluster.
  virtual void on_routes(std::shared_ptr<const NamingRoutes> routes) { static_cast<void>(routes); }

 protected:
  ~NamingSink() = default;
};

// Finds the endpoints of one name, until it is destroyed. Used on the thread of its loop.
class NamingSource {
 public:
  virtual ~NamingSource() = default;
  // Begins. Called once. Reports to `sink`, which outlives this object, from this call on.
  virtual void start(Loop& loop, NamingSink& sink) = 0;
  // True if the list never changes, so that it has no age.
  virtual bool constant() const noexcept { return false; }
};

// A kind of names, such as "list" in "list:a:1,b:1". A function that returns one makes a kind of your own.
struct NamingScheme {
  std::string name;
  // Makes the source of a target, which is the part of the name behind "<scheme>:" and "//". Fails with
  // `invalid_argument` if the target is malformed.
  std::function<Result<std::unique_ptr<NamingSource>>(std::string_view target)> open;
};

// list:host:port;weight=3;zone=a,host:port  A fixed list. Attributes follow behind semicolons: `weight`, `priority` and
// `zone`; any other one is a tag.
NamingScheme list_naming();

struct FileNamingOptions {
  // The file is looked at after this time even if the system reported no change.
  Duration check_interval = std::chrono::seconds(2);
  std::size_t file_bytes_max = std::size_t{4} << 20;
};

// file:/path  One endpoint a line, with attributes behind blanks: `host:port weight=3 zone=a`. Empty lines and lines
// that begin with # are ignored. A change is noticed at once. Replace the file by a rename: a file that is written in
// place may be read half. If a line is malformed, the whole file is refused.
NamingScheme file_naming(FileNamingOptions options = {});

struct DnsNamingOptions {
  // Name servers as "address:port,...". Empty: those of /etc/resolv.conf.
  std::string servers = {};
  // The name is asked for again when the shortest time to live of its records has passed, within these bounds. After a
  // failure, it is asked for again after refresh_min at first, and at most refresh_max. refresh_min is at least 1 ms.
  Duration refresh_min = std::chrono::seconds(1);
  Duration refresh_max = std::chrono::minutes(5);
  // Asks for the TXT records of _grpc_config.<name>, which may have a service config (gRFC A2), whenever the list is
  // asked for.
  bool service_config = true;
};

// dns:host:port           The IPv4 and IPv6 addresses of the host (A and AAAA), each with the port.
// dns:_service._tcp.host  The targets of the SRV records, with their ports, priorities and weights.
// dns://server:port/...   The same, asked from one name server.
// The domains of /etc/resolv.conf are searched, and /etc/hosts is not read.
NamingScheme dns_naming(DnsNamingOptions options = {});

// The schemes above.
std::vector<NamingScheme> default_naming();

// The knowledge about a name.
struct NamingState {
  std::uint64_t version = 0;             // Number of accepted lists that differed from the one before. 0: no list yet.
  std::vector<Endpoint> endpoints = {};  // The last good list. Each address once, in the order of the source.
  Time confirmed = {};                   // When the source last said that this is the list.
  bool constant = false;                 // The source's list never changes.
  std::optional<Error> error = {};       // Why the source cannot say, or why its newer list was refused.
  std::uint64_t lists_refused = 0;       // Lists that were refused. The last good list stayed.
  std::uint64_t endpoints_dropped = 0;   // Malformed and repeated endpoints of accepted lists, all lists together.
  std::string drop_reason = {};          // The reason for the endpoint that was dropped last.
  std::shared_ptr<const ServiceConfig> service_config = {};  // The last good one of the source. Null: none.
  std::string service_config_error = {};            // Why the source's service config is not used. Empty: no problem.
  std::shared_ptr<const NamingPolicy> policy = {};  // The last one of the source. Null: it demands nothing.
  std::shared_ptr<const NamingRoutes> routes = {};  // The last ones of the source. Null: all calls are served alike.

  // Time since the source last confirmed the list; zero for a constant list.
  Duration age(Time now) const noexcept { return constant || version == 0 ? Duration::zero() : now - confirmed; }
};

// Follows a name. The last good list survives failures of the source. A list that is empty, has more than
// EndpointLimits::endpoints_max endpoints or no valid one is refused with a reason. A list of more than 128 endpoints
// is checked in several turns of the loop, unless the routes have another main cluster than before. Belongs to a loop
// and its thread.
class Naming {
 public:
  // `changed` is called after each change of state().endpoints, state().service_config, state().policy and
  // state().routes, and after failures while there is no list; perhaps already before this returns. Fails with
  // `invalid_argument` if no scheme of `schemes` has the name, or if its target is malformed.
  // `confirmed` is called after each change of state().confirmed, and before `changed` for the same list.
  static Result<std::unique_ptr<Naming>> open(Loop& loop, std::string_view name,
                                              const std::vector<NamingScheme>& schemes,
                                              std::function<void()> changed = {}, std::function<void()> confirmed = {});
  Naming(const Naming&) = delete;
  Naming& operator=(const Naming&) = delete;
  ~Naming();

  const NamingState& state() const noexcept;

 private:
  class Keeper;
  explicit Naming(std::unique_ptr<Keeper> keeper) noexcept;
  std::unique_ptr<Keeper> keeper_;
};

}  // namespace hawser
