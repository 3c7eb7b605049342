#include "engine.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/nixl_log.h"

namespace hawser::nixl {
namespace {

// Memory of this agent, as NIXL keeps it.
struct LocalMemory final : nixlBackendMD {
  explicit LocalMemory(std::unique_ptr<Registration> given) : nixlBackendMD(true), registration(std::move(given)) {}
  const std::unique_ptr<Registration> registration;
};

// Memory that transfers access: of another agent, or of this one for local transfers.
struct TargetMemory final : nixlBackendMD {
  TargetMemory(RemoteRegion given, std::uintptr_t first)
      : nixlBackendMD(false), region(std::move(given)), address(first) {}
  const RemoteRegion region;
  const std::uintptr_t address;
};

struct Request final : nixlBackendReqH {
  explicit Request(std::shared_ptr<Transfer> given) noexcept : transfer(std::move(given)) {}
  const std::shared_ptr<Transfer> transfer;
};

nixl_status_t status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok: return NIXL_SUCCESS;
    case ErrorCode::invalid_argument: return NIXL_ERR_INVALID_PARAM;
    case ErrorCode::stale_handle: return NIXL_ERR_NOT_FOUND;
    case ErrorCode::cancelled: return NIXL_ERR_CANCELED;
    case ErrorCode::not_sent:
    case ErrorCode::outcome_unknown:
    case ErrorCode::unavailable: return NIXL_ERR_REMOTE_DISCONNECT;
    default: return NIXL_ERR_BACKEND;
  }
}

nixl_status_t report(std::string_view what, const Error& error) {
  NIXL_ERROR << "HAWSER: " << what << ": " << error.describe();
  return status_of(error.code);
}

void log_line(LogLevel level, std::string_view component, std::string_view text) {
  switch (level) {
    case LogLevel::debug:
    case LogLevel::info: NIXL_DEBUG << "HAWSER " << component << ": " << text; break;
    case LogLevel::warning: NIXL_WARN << "HAWSER " << component << ": " << text; break;
    case LogLevel::error: NIXL_ERROR << "HAWSER " << component << ": " << text; break;
  }
}

Result<unsigned> parse_number(std::string_view name, std::string_view text, unsigned least, unsigned most) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return fail(ErrorCode::invalid_argument, "parameter " + std::string(name) + " is '" + std::string(text) +
                                                 "': give a number from " + std::to_string(least) + " to " +
                                                 std::to_string(most));
  }
  return value;
}

Result<TransportOptions> parse_transports(std::string_view text) {
  TransportOptions options;
  options.enabled.clear();
  std::istringstream names{std::string(text)};
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "shm") {
      options.enable(shm());
    } else if (name == "rdma") {
      options.enable(rdma());
    } else if (name != "tcp") {
      return fail(ErrorCode::invalid_argument,
                  "parameter transports has '" + name + "': give a list of tcp, shm and rdma with commas");
    }
  }
  return options;
}

Result<AgentOptions> parse(const std::string& name, nixl_b_params_t given) {
  given.merge(Engine::parameters());
  AgentOptions options{.name = name, .listen = given["listen"], .log = &log_line};
  Result<TransportOptions> transports = parse_transports(given["transports"]);
  if (!transports) return std::unexpected(std::move(transports.error()));
  options.transports = std::move(*transports);
  const Result<unsigned> threads = parse_number("threads", given["threads"], 1, 256);
  if (!threads) return std::unexpected(threads.error());
  options.threads = *threads;
  const Result<unsigned> seconds = parse_number("timeout_seconds", given["timeout_seconds"], 1, 1'000'000);
  if (!seconds) return std::unexpected(seconds.error());
  options.timeout = std::chrono::seconds(*seconds);
  return options;
}

// One part for each pair of registrations, because a device accesses one registration by one entry of a batch.
Result<std::vector<Transfer::Part>> make_parts(const nixl_meta_dlist_t& local, const nixl_meta_dlist_t& remote) {
  const auto count = static_cast<std::size_t>(local.descCount());
  if (local.descCount() != remote.descCount()) {
    return fail(ErrorCode::invalid_argument, "the local list has " + std::to_string(local.descCount()) +
                                                 " descriptors, and the remote one " +
                                                 std::to_string(remote.descCount()) + ": they need the same number");
  }
  std::vector<Transfer::Part> parts;
  std::map<std::pair<const nixlBackendMD*, const nixlBackendMD*>, std::size_t> places;
  std::pair<const nixlBackendMD*, const nixlBackendMD*> last;
  std::size_t place = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const nixlMetaDesc& from = local[i];
    const nixlMetaDesc& to = remote[i];
    if (from.len != to.len) {
      return fail(ErrorCode::invalid_argument, "descriptor " + std::to_string(i) + " has " + std::to_string(from.len) +
                                                   " bytes here and " + std::to_string(to.len) + " there");
    }
    const auto& target = static_cast<const TargetMemory&>(*to.metadataP);
    const std::pair<const nixlBackendMD*, const nixlBackendMD*> pair{from.metadataP, to.metadataP};
    if (i == 0 || pair != last) {
      const auto [found, added] = places.try_emplace(pair, parts.size());
      if (added) parts.push_back({target.region, {}});
      place = found->second;
      last = pair;
      if (added && parts.size() == 1) parts.front().batch.reserve(count);
    }
    parts[place].batch.add({reinterpret_cast<std::byte*>(from.addr), from.len}, to.addr - target.address);
  }
  return parts;
}

Request& request_of(nixlBackendReqH* handle) noexcept { return static_cast<Request&>(*handle); }

}  // namespace

nixl_b_params_t Engine::parameters() {
  return {{"listen", "0.0.0.0:0"}, {"transports", "tcp,shm"}, {"threads", "1"}, {"timeout_seconds", "300"}};
}

Engine::Engine(const nixlBackendInitParams* parameters) : nixlBackendEngine(parameters) {
  Result<AgentOptions> options = parse(localAgent, getCustomParams());
  Result<std::unique_ptr<Agent>> agent =
      options ? Agent::start(std::move(*options)) : std::unexpected(std::move(options.error()));
  if (!agent) {
    report("agent '" + localAgent + "' does not start", agent.error());
    initErr = true;
    return;
  }
  agent_ = std::move(*agent);
  agent_->add_peer(localAgent, agent_->information());
}

nixl_status_t Engine::registerMem(const nixlBlobDesc& memory, const nixl_mem_t& kind, nixlBackendMD*& out) {
  if (kind != DRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
  Result<std::unique_ptr<Registration>> registration =
      agent_->add_memory({reinterpret_cast<std::byte*>(memory.addr), memory.len});
  if (!registration) return report("registering memory", registration.error());
  out = new LocalMemory(std::move(*registration));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD* metadata) {
  delete metadata;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getPublicData(const nixlBackendMD* metadata, std::string& out) const {
  out = encode(static_cast<const LocalMemory*>(metadata)->registration->handle());
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadLocalMD(nixlBackendMD* input, nixlBackendMD*& output) {
  const Registration& registration = *static_cast<LocalMemory*>(input)->registration;
  output = new TargetMemory(registration.handle(), registration.address());
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& kind, const std::string& agent,
                                   nixlBackendMD*& output) {
  if (kind != DRAM_SEG) return NIXL_ERR_NOT_SUPPORTED;
  if (agent_->find_peer(agent) == nullptr) return NIXL_ERR_NOT_FOUND;  // No information about a connection was loaded.
  Result<RemoteRegion> region = decode_region(input.metaInfo);
  if (!region) return report("metadata of agent '" + agent + "'", region.error());
  output = new TargetMemory(std::move(*region), input.addr);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::unloadMD(nixlBackendMD* input) {
  delete input;
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getConnInfo(std::string& out) const {
  out = encode(agent_->information());
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteConnInfo(const std::string& agent, const std::string& information) {
  Result<AgentInformation> decoded = decode_information(information);
  if (!decoded) return report("metadata of agent '" + agent + "'", decoded.error());
  agent_->add_peer(agent, std::move(*decoded));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::connect(const std::string& agent) {
  const std::shared_ptr<Peer> peer = agent_->find_peer(agent);
  if (peer == nullptr) return NIXL_ERR_NOT_FOUND;
  const Result<void> connected = peer->connect();
  return connected ? NIXL_SUCCESS : report("connecting to agent '" + agent + "'", connected.error());
}

nixl_status_t Engine::disconnect(const std::string& agent) {
  return agent_->remove_peer(agent) ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                               const nixl_meta_dlist_t& remote, const std::string& agent, nixlBackendReqH*& handle,
                               const nixl_opt_b_args_t* /*arguments*/) const {
  std::shared_ptr<Peer> peer = agent_->find_peer(agent);
  if (peer == nullptr) return NIXL_ERR_NOT_FOUND;
  Result<std::vector<Transfer::Part>> parts = make_parts(local, remote);
  if (!parts) return report("preparing a transfer with agent '" + agent + "'", parts.error());
  const auto direction = operation == NIXL_WRITE ? Transfer::Direction::write : Transfer::Direction::read;
  handle = new Request(std::make_shared<Transfer>(std::move(peer), direction, std::move(*parts)));
  return NIXL_SUCCESS;
}

// The lists are those of prepXfer().
nixl_status_t Engine::postXfer(const nixl_xfer_op_t& /*operation*/, const nixl_meta_dlist_t& /*local*/,
                               const nixl_meta_dlist_t& /*remote*/, const std::string& /*agent*/,
                               nixlBackendReqH*& handle, const nixl_opt_b_args_t* arguments) const {
  const std::shared_ptr<Transfer>& transfer = request_of(handle).transfer;
  if (transfer->active()) return NIXL_ERR_REPOST_ACTIVE;
  std::optional<std::string> notification;
  if (arguments != nullptr && arguments->hasNotif) notification = arguments->notifMsg;
  transfer->peer()->post(transfer, std::move(notification));
  return NIXL_IN_PROG;
}

nixl_status_t Engine::checkXfer(nixlBackendReqH* handle) const {
  const Transfer& transfer = *request_of(handle).transfer;
  return transfer.active() ? NIXL_IN_PROG : status_of(transfer.outcome());
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH* handle) const {
  const std::unique_ptr<Request> request(&request_of(handle));
  if (request->transfer->active()) request->transfer->peer()->cancel(request->transfer);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getNotifs(notif_list_t& out) {
  std::vector<Inbox::Notification> arrived = agent_->inbox().take();
  if (out.empty()) {
    out = std::move(arrived);
  } else {
    for (Inbox::Notification& notification : arrived) out.push_back(std::move(notification));
  }
  return NIXL_SUCCESS;
}

nixl_status_t Engine::genNotif(const std::string& agent, const std::string& message) const {
  const std::shared_ptr<Peer> peer = agent_->find_peer(agent);
  if (peer == nullptr) return NIXL_ERR_NOT_FOUND;
  const Result<void> accepted = peer->notify(message);
  return accepted ? NIXL_SUCCESS : report("notification of agent '" + agent + "'", accepted.error());
}

}  // namespace hawser::nixl
