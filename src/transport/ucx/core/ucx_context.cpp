#include "transport/ucx/core/ucx_context.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/try.h"

namespace hawser::transport {
namespace {

Result<void> within(std::string_view name, std::size_t value, std::size_t least, std::size_t most) {
  if (value >= least && value <= most) return {};
  return fail(Error::of_transport(ErrorCode::invalid_argument,
                                  "UcxOptions::" + std::string(name) + " is " + std::to_string(value) + ": give " +
                                      std::to_string(least) + " to " + std::to_string(most)));
}

// True unless the system refuses to read the memory of processes at all, as filters of system calls do. UCX finds out
// in a call of 8 KiB or more, which then fails.
bool may_read_processes() noexcept {
  char from = 0;
  char to = 0;
  const iovec local{&to, 1};
  const iovec remote{&from, 1};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

// The user's list of transports: the option, or the variable of the environment. Empty: UCX selects them.
std::string listed_transports(const UcxOptions& options) {
  const char* const variable = std::getenv("UCX_TLS");
  return options.tls.empty() && variable != nullptr ? variable : options.tls;
}

// True for the names of UCX's own shared memory, and of the groups that contain it. A name may follow a backslash, and
// ':' may follow a name (UCX_TLS).
bool names_shared_memory(std::string_view name) {
  if (name.starts_with('\\')) name.remove_prefix(1);
  name = name.substr(0, name.find(':'));
  constexpr std::string_view names[] = {"posix", "sysv", "xpmem", "mm", "sm", "shm"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Returns the list without UCX's own shared memory (docs/decisions/0063). Empty: nothing is left.
std::string without_shared_memory(std::string_view list) {
  if (list.starts_with('^')) return std::string(list) + ",mm";
  std::string left;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view name = list.substr(0, comma);
    if (name == "all") return "^mm";
    if (!names_shared_memory(name)) left.append(left.empty() ? "" : ",").append(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return left;
}

// UCX's transports. Empty: UCX selects them, also by the variable UCX_TLS of the environment.
std::string transports_of(const UcxOptions& options) {
  const std::string listed = listed_transports(options);
  const std::string list = listed.empty() && !may_read_processes() ? "^cma" : listed;
  if (options.error_mode == UcxErrorMode::peer) return without_shared_memory(list.empty() ? "all" : list);
  return listed.empty() ? list : options.tls;
}

}  // namespace

Result<void> check(const UcxOptions& options) {
  struct Bound {
    std::string_view name;
    std::size_t value, least, most;
  };
  const Bound bounds[] = {
      {"max_eager_rails", options.max_eager_rails, 0, 16},
      {"max_rendezvous_rails", options.max_rendezvous_rails, 0, 16},
      {"rendezvous_bytes_min", options.rendezvous_bytes_min, UcxOptions::rendezvous_bytes_least,
       UcxOptions::rendezvous_bytes_most},
      {"registered_bytes_min", options.registered_bytes_min, UcxOptions::rendezvous_bytes_least,
       UcxOptions::rendezvous_bytes_most},
      {"packed_bytes_max", options.packed_bytes_max, std::size_t{1} << 10, std::size_t{64} << 10},
      {"window_bytes", options.window_bytes, UcxOptions::window_bytes_min, UcxOptions::window_bytes_max},
      {"rendezvous_in_flight_max", options.rendezvous_in_flight_max, 1, 1024},
      {"poll_burst", options.poll_burst, 1, 1024},
      {"connections_max", options.connections_max, 1, 65536},
      {"half_open_max", options.half_open_max, 1, 65536},
  };
  for (const Bound& bound : bounds) {
    TRY(within(bound.name, bound.value, bound.least, bound.most));
  }
  if (options.error_mode == UcxErrorMode::peer && transports_of(options).empty()) {
    return fail(Error::of_transport(
        ErrorCode::invalid_argument,
        "the UCX transports '" + listed_transports(options) +
            "' (UcxOptions::tls or UCX_TLS) are shared memory, which UcxErrorMode::peer does not use: add tcp or "
            "a transport of RDMA, or set UcxErrorMode::none"));
  }
  if (options.wire_up_timeout <= Duration::zero()) {
    return fail(Error::of_transport(ErrorCode::invalid_argument,
                                    "UcxOptions::wire_up_timeout is not positive: give more than 0"));
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> ucx_settings(const UcxOptions& options, std::string_view library) {
  std::vector<std::pair<std::string, std::string>> settings;
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) settings.emplace_back(name, value);
  };
  set("LOG_LEVEL", options.log_level);
  // Endpoints are identified by an id that UCX looks up instead of a memory address, so that UCX drops a message for a
  // closed endpoint instead of ending the process.
  set("PROTO_INDIRECT_ID", "y");
  // UCX's TCP transport processes one event at a time. Among several events, one may concern a socket that the handling
  // of an earlier event has found broken; then an assertion in UCX 1.13 fails and ends the process. Its name for this
  // setting is not that of later versions, of which 1.23 refuses unknown names.
  set("TCP_MAX_POLL", "1");
  if (library.starts_with("1.13.")) set("MAX_POLL", "1");
  // UCX 1.13 may take what it reads behind the end of a killed peer for the acknowledgement of a PUT, and an assertion
  // ends the process. Without PUT, large payloads are sent as messages, with less bandwidth.
  if (library.starts_with("1.13.")) set("PUT_ENABLE", "n");
  // With this cache, UCX 1.13 keeps 2 MB of each worker that is destroyed until the context ends. UCX 1.18 does not. It
  // needs the cache for RDMA devices, which have one of their own in UCX 1.13.
  if (library.starts_with("1.13.")) set("RCACHE_ENABLE", "n");
  set("TLS", transports_of(options));
  set("NET_DEVICES", options.net_devices);
  if (options.max_eager_rails != 0) set("MAX_EAGER_RAILS", std::to_string(options.max_eager_rails));
  if (options.max_rendezvous_rails != 0) set("MAX_RNDV_RAILS", std::to_string(options.max_rendezvous_rails));
  return settings;
}

Result<std::shared_ptr<UcxContext>> UcxContext::make(const UcxOptions& options, bool events,
                                                     std::shared_ptr<UcxMemory> memory,
                                                     std::shared_ptr<UcxLingering> lingering) {
  TRY(check(options));
  TRY(const UcpLibrary* const loaded, UcpLibrary::load());
  return make(*loaded, options, events, std::move(memory), std::move(lingering));
}

Result<std::shared_ptr<UcxContext>> UcxContext::make(const UcpLibrary& ucp, const UcxOptions& options, bool events,
                                                     std::shared_ptr<UcxMemory> memory,
                                                     std::shared_ptr<UcxLingering> lingering) {
  TRY(check(options));
  ucp_config_t* config = nullptr;
  if (const ucs_status_t status = ucp.config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return fail(ucx_error(ucp, "reading UCX's settings (the UCX_... variables of the environment)", status,
                          ErrorScope::transport));
  }
  const std::unique_ptr<ucp_config_t, decltype(ucp.config_release)> release(config, ucp.config_release);
  for (const auto& [name, value] : ucx_settings(options, ucp.version)) {
    if (const ucs_status_t status = ucp.config_modify(config, name.c_str(), value.c_str()); status != UCS_OK) {
      return fail(ucx_error(ucp, "setting UCX's " + name + " to '" + value + "'", status, ErrorScope::transport));
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | (events ? std::uint64_t{UCP_FEATURE_WAKEUP} : 0);
  params.mt_workers_shared = 1;  // Workers of several loops use the context at once.
  params.name = "hawser";
  ucp_context_h context = nullptr;
  if (const ucs_status_t status = ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
      status != UCS_OK) {
    const std::string used = transports_of(options);
    return fail(ucx_error(ucp,
                          "starting UCX with transports '" + (used.empty() ? "all" : used) + "' and devices '" +
                              (options.net_devices.empty() ? "all" : options.net_devices) +
                              "' (ucx_info -d lists what there is)",
                          status, ErrorScope::transport));
  }
  return std::shared_ptr<UcxContext>(
      new UcxContext(ucp, context, options, events, std::move(memory), std::move(lingering)));
}

UcxContext::~UcxContext() { ucp_.cleanup(context_); }

}  // namespace hawser::transport
