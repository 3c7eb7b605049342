#include "transport/tcp/resolver.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

namespace hawser::transport {
namespace {

// While questions are open c-ares looks at its own time-outs so often, and at its sockets besides, whose edges it may
// have left unread.
constexpr Duration tick = std::chrono::milliseconds(20);
// The first wait for an answer, which doubles with each of the tries; connect_timeout usually ends it earlier.
constexpr int first_timeout_ms = 1000;
constexpr int tries = 4;

int library_ready() noexcept {
  static std::once_flag once;
  static int status = ARES_SUCCESS;
  std::call_once(once, [] { status = ares_library_init(ARES_LIB_INIT_ALL); });
  return status;
}

bool is_or_ends_with(std::string_view host, std::string_view domain) noexcept {
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.size() < domain.size()) return false;
  const std::string_view end = host.substr(host.size() - domain.size());
  const bool same = std::equal(end.begin(), end.end(), domain.begin(),
                               [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
  return same && (host.size() == domain.size() || host[host.size() - domain.size() - 1] == '.');
}

SocketAddress address_of(int family, const void* bytes, std::uint16_t port) noexcept {
  SocketAddress address;
  if (family == AF_INET6) {
    auto& storage = reinterpret_cast<sockaddr_in6&>(address.storage);
    storage.sin6_family = AF_INET6;
    storage.sin6_port = htons(port);
    std::memcpy(&storage.sin6_addr, bytes, sizeof storage.sin6_addr);
    address.size = sizeof storage;
  } else {
    auto& storage = reinterpret_cast<sockaddr_in&>(address.storage);
    storage.sin_family = AF_INET;
    storage.sin_port = htons(port);
    std::memcpy(&storage.sin_addr, bytes, sizeof storage.sin_addr);
    address.size = sizeof storage;
  }
  return address;
}

}  // namespace

Resolver::Resolver(Loop& loop, const HostPort& where, AddressList& list, const ResolverOptions& options)
    : Timer(&Resolver::on_tick), loop_(loop), list_(list), host_(where.host) {
  try {
    begin(where, options);
  } catch (...) {
    close();
    throw;
  }
}

void Resolver::begin(const HostPort& where, const ResolverOptions& options) {
  // No server knows it, and none has to be asked (RFC 6761, section 6.4).
  if (is_or_ends_with(host_, "invalid")) return fail_with("no name ends in .invalid");
  if (const int status = library_ready(); status != ARES_SUCCESS) return fail_with(ares_strerror(status));
  ares_options with{};
  with.timeout = first_timeout_ms;
  with.tries = tries;
  with.sock_state_cb = &Resolver::on_socket;
  with.sock_state_cb_data = this;
  char dns_only[] = "b";
  with.lookups = dns_only;
  ares_channel channel = nullptr;
  const int status = ares_init_options(&channel, &with,
                                       ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS);
  if (status != ARES_SUCCESS) return fail_with(ares_strerror(status));
  channel_ = channel;
  if (!options.servers.empty()) {
    if (const int set = ares_set_servers_ports_csv(channel_, options.servers.c_str()); set != ARES_SUCCESS) {
      return fail_with("name servers '" + options.servers + "': " + ares_strerror(set));
    }
  }
  from_hosts_file(where);
  if (!list_.completed()) from_dns(where);
}

void Resolver::close() noexcept {
  closing_ = true;
  if (channel_ != nullptr) ares_destroy(std::exchange(channel_, nullptr));
}

Resolver::~Resolver() { close(); }

void Resolver::fail_with(const std::string& why) {
  list_.complete(Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0,
                       "cannot resolve '" + host_ + "': " + why});
}

void Resolver::from_hosts_file(const HostPort& where) {
  const auto port = static_cast<std::uint16_t>(std::stoi(where.port));
  for (const int family : {AF_INET6, AF_INET}) {
    hostent* host = nullptr;
    if (ares_gethostbyname_file(channel_, host_.c_str(), family, &host) != ARES_SUCCESS) continue;
    const std::unique_ptr<hostent, decltype(&ares_free_hostent)> held(host, &ares_free_hostent);
    for (char** one = host->h_addr_list; *one != nullptr; ++one) list_.add(address_of(family, *one, port));
  }
  // The name of every machine for itself (RFC 6761, section 6.3).
  if (list_.empty() && is_or_ends_with(host_, "localhost")) {
    const in_addr v4{htonl(INADDR_LOOPBACK)};
    list_.add(address_of(AF_INET6, &in6addr_loopback, port));
    list_.add(address_of(AF_INET, &v4, port));
  }
  if (!list_.empty()) list_.complete();
}

void Resolver::from_dns(const HostPort& where) {
  queries_[0].family = AF_INET6;
  queries_[1].family = AF_INET;
  for (Query& query : queries_) query.owner = this;
  for (Query& query : queries_) {
    ares_addrinfo_hints hints{};
    hints.ai_family = query.family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = ARES_AI_NUMERICSERV;
    ares_getaddrinfo(channel_, host_.c_str(), where.port.c_str(), &hints, &Resolver::on_answer, &query);
  }
  if (!list_.completed()) Timer::start(loop_, loop_.now() + tick);
}

// From within c-ares, as is on_answer(): no exception may pass it, and the channel must not be destroyed.
void Resolver::on_answer(void* at, int status, int, ares_addrinfo* result) noexcept {
  const std::unique_ptr<ares_addrinfo, decltype(&ares_freeaddrinfo)> held(result, &ares_freeaddrinfo);
  Query& query = *static_cast<Query*>(at);
  if (query.owner->closing_) return;
  query.done = true;
  query.status = status;
  try {
    for (const ares_addrinfo_node* node = result == nullptr ? nullptr : result->nodes;
         node != nullptr && query.found.size() < AddressList::addresses_max; node = node->ai_next) {
      SocketAddress address;
      if (node->ai_addrlen > sizeof address.storage) continue;
      std::memcpy(&address.storage, node->ai_addr, node->ai_addrlen);
      address.size = static_cast<socklen_t>(node->ai_addrlen);
      query.found.push_back(address);
    }
    query.owner->settle();
  } catch (const std::exception&) {
    query.status = ARES_ENOMEM;
    query.owner->list_.complete();
  }
}

void Resolver::release(Query& query) {
  for (const SocketAddress& one : std::exchange(query.found, {})) list_.add(one);
}

// Hands on what may be tried by now.
void Resolver::settle() {
  auto& [v6, v4] = queries_;
  if (v6.done) release(v6);
  if (v4.done) {
    if (v4_came_ == Time{}) v4_came_ = loop_.now();
    if (v6.done || loop_.now() - v4_came_ >= resolution_delay) release(v4);
  }
  if (!v6.done || !v4.done || list_.completed()) return;
  Timer::stop();
  // Of the two the less usual one, that is, not "there is no such record".
  const int status = v4.status == ARES_SUCCESS || v4.status == ARES_ENODATA ? v6.status : v4.status;
  list_.complete(Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0,
                       "cannot resolve '" + host_ + "': " + ares_strerror(status)});
}

void Resolver::process(int readable, int writable) { ares_process_fd(channel_, readable, writable); }

void Resolver::on_tick(Timer& timer) noexcept {
  Resolver& self = static_cast<Resolver&>(timer);
  self.process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  for (std::size_t i = 0; i < self.watches_.size(); ++i) {
    if (self.watches_[i]->open) self.process(self.watches_[i]->fd, ARES_SOCKET_BAD);
  }
  std::erase_if(self.watches_, [](const auto& watch) { return !watch->open; });
  try {
    self.settle();
  } catch (const std::exception&) {
    self.list_.complete();
  }
  if (!self.list_.completed()) self.start(self.loop_, self.loop_.now() + tick);
}

void Resolver::Watch::on_ready(exec::Readiness readiness) {
  if (!open) return;
  const int with = fd;
  Resolver& resolver = owner;
  resolver.process(readiness.readable || readiness.hangup ? with : ARES_SOCKET_BAD,
                   readiness.writable ? with : ARES_SOCKET_BAD);
}

void Resolver::on_socket(void* at, int fd, int readable, int writable) noexcept {
  Resolver& self = *static_cast<Resolver*>(at);
  const auto found = std::find_if(self.watches_.begin(), self.watches_.end(),
                                  [&](const auto& watch) { return watch->open && watch->fd == fd; });
  if (readable == 0 && writable == 0) {
    if (found == self.watches_.end()) return;
    // Its own call may be going on: destroyed at the next tick.
    (*found)->open = false;
    if ((*found)->watched) self.loop_.poller().unwatch(fd, **found);
    return;
  }
  if (found != self.watches_.end()) return;
  try {
    self.watches_.push_back(std::make_unique<Watch>(self, fd));
    self.loop_.poller().watch(fd, *self.watches_.back());
    self.watches_.back()->watched = true;
  } catch (const std::exception&) {
    // The poller takes no more: its ticks are enough. Without memory for the watch, the question times out.
  }
}

}  // namespace hawser::transport
