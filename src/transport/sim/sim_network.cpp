#include "transport/sim/sim_network.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "hawser/crc32c.h"
#include "hawser/loop.h"
#include "transport/sim/sim_stream.h"

namespace hawser::transport {
namespace {

// Pause after which an attempt to connect is repeated while nothing answers.
constexpr Duration connect_retry = std::chrono::seconds(1);

}  // namespace

SimState::UnclaimedConnection::UnclaimedConnection(std::shared_ptr<SimLink> over,
                                                   std::unique_ptr<SimStream> end) noexcept
    : link(std::move(over)), stream(std::move(end)) {}
SimState::UnclaimedConnection::UnclaimedConnection(UnclaimedConnection&&) noexcept = default;
SimState::UnclaimedConnection::~UnclaimedConnection() = default;

void SimState::record(Time when, std::uint64_t connection, SimEvent event, std::uint64_t number, Bytes bytes) noexcept {
  const auto add = [this](std::uint64_t value) {
    for (unsigned i = 0; i < 8; ++i) {
      trace ^= value >> (8 * i) & 0xffU;
      trace *= 0x100000001b3U;
    }
  };
  add(static_cast<std::uint64_t>(when.time_since_epoch().count()));
  add(connection << 8 | static_cast<std::uint64_t>(event));
  add(number);
  add(static_cast<std::uint64_t>(bytes.size()) << 32 | crc32c(0, bytes));
  ++events;
}

bool SimState::separated(std::string_view from, std::string_view to) const {
  if (partitions.empty() || from == to) return false;
  const auto has = [this](std::string_view a, std::string_view b) {
    return partitions.contains({std::string(a), std::string(b)});
  };
  return has(from, to) || has(from, "") || has("", to) || has("", "");
}

// A listener that holds connections until they have arrived.
class SimListener final : public Listener {
 public:
  SimListener(Loop& loop, std::shared_ptr<SimState> state, std::string address, AcceptSink& sink)
      : loop_(loop), state_(std::move(state)), address_(std::move(address)), sink_(sink) {
    state_->listeners.emplace(address_, this);
  }
  ~SimListener() override { state_->listeners.erase(address_); }

  std::string address() const override { return address_; }
  void arrive(std::unique_ptr<Stream> stream, Time when) {
    arriving_.push_back({std::move(stream), arriving_.empty() ? when : std::max(when, arriving_.back().when)});
    if (!timer_.running()) timer_.start(loop_, arriving_.front().when);
  }

 private:
  struct Arriving {
    std::unique_ptr<Stream> stream;
    Time when;
  };
  void accept() {
    Arriving first = std::move(arriving_.front());
    arriving_.pop_front();
    if (!arriving_.empty()) timer_.start(loop_, arriving_.front().when);
    state_->record(loop_.now(), 0, SimEvent::accept, 0);
    sink_.accepted(std::move(first.stream));
  }

  Loop& loop_;
  const std::shared_ptr<SimState> state_;
  const std::string address_;
  AcceptSink& sink_;
  std::deque<Arriving> arriving_;
  MemberTimer<&SimListener::accept> timer_{*this};
};

SimNetwork::SimNetwork(std::uint64_t seed, SimOptions options) : state_(std::make_shared<SimState>(seed, options)) {}
SimNetwork::~SimNetwork() = default;

Result<std::unique_ptr<Listener>> SimNetwork::listen(Loop& loop, std::string_view address, AcceptSink& sink) {
  std::string taken(address);
  if (taken.ends_with(":0")) taken.replace(taken.size() - 1, 1, std::to_string(state_->next_port++));
  if (state_->listeners.contains(taken)) {
    return fail(Error::of_connection(ErrorCode::unavailable, taken + " is being listened on already"));
  }
  return std::make_unique<SimListener>(loop, state_, std::move(taken), sink);
}

Task<Result<std::unique_ptr<Stream>>> SimNetwork::connect_from(Loop& loop, std::string host, std::string address,
                                                               Duration timeout) {
  const std::shared_ptr<SimState> state = state_;
  const bool unanswered = state->random.chance(state->options.unanswered);
  const bool refused = state->random.chance(state->options.refuse);
  const Duration round_trip = state->delay() + state->delay();
  const Time deadline = loop.after(timeout);
  const std::string server(SimNetwork::host_of(address));
  bool answered = false;
  while (!answered && loop.now() < deadline) {
    const Duration left = deadline - loop.now();
    answered = !unanswered && round_trip <= left && !state->unreachable(host, server);
    co_await loop.sleep(answered ? round_trip : unanswered ? left : std::min(connect_retry, left));
    answered = answered && !state->unreachable(host, server);
  }
  if (!answered) {
    state->record(loop.now(), 0, SimEvent::refuse, 1);
    co_return fail(Error::of_connection(ErrorCode::unavailable, "connecting to " + address + " timed out"));
  }
  const auto listener = state->listeners.find(address);
  if (refused || listener == state->listeners.end()) {
    state->record(loop.now(), 0, SimEvent::refuse, 0);
    co_return fail(Error::of_connection(ErrorCode::unavailable, "connecting to " + address + " was refused"));
  }
  const auto link =
      std::make_shared<SimLink>(loop, state, host + ":" + std::to_string(state->connections + 1), address);
  state->record(loop.now(), link->id, SimEvent::connect, 0);
  auto ours = std::make_unique<SimStream>(link, 0);
  listener->second->arrive(std::make_unique<SimStream>(link, 1), loop.now() + state->delay());
  co_return ours;
}

std::vector<std::shared_ptr<Transport>> SimNetwork::transports(const TransportOptions& options) {
  if (state_->options.make_transport == nullptr || std::ranges::find(options.order, "simpath") == options.order.end())
    return {};
  return {state_->options.make_transport(state_)};
}

void SimNetwork::reset_streams() {
  for (SimLink* link : state_->links) {
    if (link->kind == SimLink::Kind::stream) link->reset();
  }
}

void SimNetwork::reset_transports() {
  for (SimLink* link : state_->links) {
    if (link->kind == SimLink::Kind::transport) link->reset();
  }
}

void SimNetwork::set_options(const SimOptions& options) { state_->options = options; }

void SimNetwork::reset_all() {
  for (SimLink* link : state_->links) link->reset();
}

void SimNetwork::vanish_all() {
  for (SimLink* link : state_->links) link->vanish();
}

void SimNetwork::vanish_transports() {
  for (SimLink* link : state_->links) {
    if (link->kind == SimLink::Kind::transport) link->vanish();
  }
}

void SimNetwork::set_partition(std::string_view a, std::string_view b, bool separated) {
  set_partition_one_way(a, b, separated);
  set_partition_one_way(b, a, separated);
}

void SimNetwork::set_partition_one_way(std::string_view from, std::string_view to, bool separated) {
  if (separated) {
    state_->partitions.emplace(from, to);
  } else {
    state_->partitions.erase({std::string(from), std::string(to)});
  }
  for (SimLink* link : state_->links) link->update_partition();
}

void SimNetwork::end_partitions() {
  state_->partitions.clear();
  for (SimLink* link : state_->links) link->update_partition();
}

void SimNetwork::reset_host(std::string_view host) {
  for (SimLink* link : state_->links) {
    if (link->concerns(host)) link->reset();
  }
}

void SimNetwork::reset_server(std::string_view address) {
  for (SimLink* link : state_->links) {
    if (link->addresses[1] != address) continue;
    link->fall_silent(link->separated(0), link->separated(1));
    link->reset();
  }
}

void SimNetwork::power_off(std::string_view host) {
  state_->powered_off.emplace(host);
  for (SimLink* link : state_->links) {
    if (link->concerns(host)) link->fall_silent(true, true);
  }
}

void SimNetwork::power_on(std::string_view host) {
  const auto found = state_->powered_off.find(host);
  if (found == state_->powered_off.end()) return;
  state_->powered_off.erase(found);
  reset_host(host);
}

std::uint64_t SimNetwork::trace() const noexcept { return state_->trace; }
std::uint64_t SimNetwork::events() const noexcept { return state_->events; }
std::size_t SimNetwork::streams() const noexcept { return state_->streams; }

}  // namespace hawser::transport
