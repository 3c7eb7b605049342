#include "protobuf/channel/shared_sites.h"

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/at_fork.h"
#include "hawser/transport/factory.h"
#include "transport/stream_security.h"

namespace hawser::pb {

namespace {

// Facts as a text, which is the same for equal facts only.
class FactText {
 public:
  template <class... Facts>
  void add(const Facts&... facts) {
    (append(facts), ...);
  }
  std::string take() { return std::move(text_); }

 private:
  template <std::integral T>
  void append(T number) {
    text_ += std::to_string(number) + ",";
  }
  void append(Duration time) { append(time.count()); }
  void append(const std::string& text) {
    append(text.size());
    text_ += text;
  }
  void append(const std::vector<std::string>& texts) {
    append(texts.size());
    for (const std::string& text : texts) append(text);
  }
  // An object is the same as itself only. Whoever has this text keeps it.
  template <class T>
  void append(const std::shared_ptr<T>& object) {
    append(reinterpret_cast<std::uintptr_t>(object.get()));
  }

  std::string text_;
};

// The bindings name all members: with another one, this does not compile.
void add_client(FactText& facts, const ClientOptions& options) {
  // connect_timeout and call_timeout are not used: ChannelOptions and each call have their own.
  const auto& [connect_timeout, call_timeout, calls_in_flight_max, message_bytes_max, send_backlog_bytes_max,
               stream_window_bytes, decode_limits, ping_interval, checksum, transports, runtime, security, protocol,
               interceptors] = options;
  facts.add(calls_in_flight_max, message_bytes_max, send_backlog_bytes_max, stream_window_bytes, ping_interval,
            checksum, runtime, protocol, interceptors.size());
  for (const auto& interceptor : interceptors) facts.add(interceptor);
  const auto& [depth_max, empty_elements_max, memory_factor_max, memory_bytes_base, memory_bytes_max, bucket_passes_max,
               message_depth_max] = decode_limits;
  facts.add(depth_max, empty_elements_max, memory_factor_max, memory_bytes_base, memory_bytes_max, bucket_passes_max,
            message_depth_max);
  const auto& [enabled, order, required, retry_min, retry_max] = transports;
  facts.add(enabled.size(), order, required, retry_min, retry_max);
  for (const TransportSpec& transport : enabled) facts.add(std::string(transport.name()));
  const std::string identity = security != nullptr ? security->identity() : std::string();
  facts.add(identity);
  if (identity.empty()) facts.add(security);
}

// Everything that a connection depends on, except for the options of transports, which only their factories compare.
std::string key_of(const BackgroundLoops& loops, const std::string& address, const ChannelOptions& options) {
  FactText facts;
  facts.add(reinterpret_cast<std::uintptr_t>(&loops), address, options.protocol, options.connection_type,
            options.connection_group, options.connect_timeout_ms, options.connections_idle_max, options.credential);
  add_client(facts, options.client);
  return facts.take();
}

bool same_transports(const ChannelOptions& a, const ChannelOptions& b) {
  return std::ranges::equal(a.client.transports.enabled, b.client.transports.enabled,
                            [](const TransportSpec& one, const TransportSpec& other) {
                              return &one.factory() == &other.factory() ||
                                     one.factory().difference(other.factory()).empty();
                            });
}

// Never destroyed: channels may be made while the process exits.
struct Registry {
  static Registry& get() {
    static Registry& only = *make();
    return only;
  }
  static Registry* make() {
    // A child process may make channels, whatever the threads of its parent did during fork().
    at_fork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, [] { get().mutex.unlock(); });
    return new Registry;
  }

  // The site with these options; otherwise `made`, which is registered unless it is null.
  std::shared_ptr<ChannelSite> use(const std::string& key, const ChannelOptions& options,
                                   std::shared_ptr<ChannelSite> made);
  void remove_ended(const std::string& key) noexcept;

  std::mutex mutex;
  std::weak_ptr<BackgroundLoops> default_loops;
  // Each is removed at its end, so there are no more than the process has channels.
  std::unordered_multimap<std::string, std::weak_ptr<ChannelSite>> sites;
};

// The loop destroys a site, and keeps running until then.
struct SiteRelease {
  std::shared_ptr<BackgroundLoops> loops;
  std::string key;
  void operator()(ChannelSite* site) const noexcept {
    Registry::get().remove_ended(key);
    if (!loops->in_this_process()) return;  // After fork(): the connections belong to the parent.
    site->loop().post([kept = loops, owned = std::unique_ptr<ChannelSite>(site)]() mutable { owned.reset(); });
  }
};

std::shared_ptr<ChannelSite> Registry::use(const std::string& key, const ChannelOptions& options,
                                           std::shared_ptr<ChannelSite> made) {
  std::vector<std::shared_ptr<ChannelSite>> others;  // Released without the lock, which their release takes.
  const std::lock_guard lock(mutex);
  const auto [begin, end] = sites.equal_range(key);
  for (auto each = begin; each != end; ++each) {
    std::shared_ptr<ChannelSite> site = each->second.lock();
    if (site == nullptr) continue;
    if (same_transports(site->options(), options)) return site;
    others.push_back(std::move(site));
  }
  if (made != nullptr) sites.emplace(key, made);
  return made;
}

void Registry::remove_ended(const std::string& key) noexcept {
  const std::lock_guard lock(mutex);
  const auto [begin, end] = sites.equal_range(key);
  for (auto each = begin; each != end;) each = each->second.expired() ? sites.erase(each) : std::next(each);
}

}  // namespace

std::shared_ptr<BackgroundLoops> default_loops() {
  Registry& registry = Registry::get();
  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<BackgroundLoops> loops = registry.default_loops.lock();
  if (loops == nullptr || !loops->in_this_process()) registry.default_loops = loops = BackgroundLoops::start();
  return loops;
}

std::shared_ptr<ChannelSite> shared_site(const std::shared_ptr<BackgroundLoops>& loops, const std::string& address,
                                         const ChannelOptions& options) {
  Registry& registry = Registry::get();
  const std::string key = key_of(*loops, address, options);
  if (std::shared_ptr<ChannelSite> found = registry.use(key, options, nullptr)) return found;
  static std::atomic<std::size_t> sites{0};
  Loop& loop = loops->loop(sites.fetch_add(1, std::memory_order_relaxed) % loops->size());
  ChannelOptions kept = options;
  kept.loops = nullptr;  // The loops destroy the site.
  return registry.use(
      key, options,
      std::shared_ptr<ChannelSite>(new ChannelSite(loop, address, kept), SiteRelease{.loops = loops, .key = key}));
}

}  // namespace hawser::pb
