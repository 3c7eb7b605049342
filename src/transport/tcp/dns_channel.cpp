#include "transport/tcp/dns_channel.h"

// Newer versions deprecate the functions that set the functions for sockets, which Debian 12 has alone.
#define CARES_NO_DEPRECATED
#include <ares.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/descriptor.h"
#include "base/try.h"
#include "hawser/detail/loop_access.h"
#include "transport/tcp/address_list.h"

namespace hawser::transport {
namespace {

// Period in which c-ares checks its timeouts while questions are open. It also checks its sockets then, because it may
// not have read them until they were empty.
constexpr Duration tick = std::chrono::milliseconds(20);
// Time until the first retry, which doubles with each retry; connect_timeout usually ends the question earlier.
constexpr int first_timeout_ms = 1000;
constexpr int tries = 4;
constexpr int internet_class = 1;  // IN of RFC 1035.

int library_ready() noexcept {
  static std::once_flag once;
  static int status = ARES_SUCCESS;
  std::call_once(once, [] { status = ares_library_init(ARES_LIB_INIT_ALL); });
  return status;
}

std::unexpected<Error> failed(std::string_view what, int status) {
  return fail(Error::of_connection(ErrorCode::unavailable, std::string(what) + ares_strerror(status)));
}

// The sockets of c-ares are not standard descriptors, and raise no SIGPIPE.
ares_socket_t make_socket(int family, int type, int protocol, void*) {
  const int fd = above_standard(::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
  const int on = 1;
  if (fd >= 0 && type == SOCK_STREAM) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

const ares_socket_functions socket_functions = {
    .asocket = &make_socket,
    .aclose = [](ares_socket_t fd, void*) { return ::close(fd); },
    .aconnect = [](ares_socket_t fd, const sockaddr* to, ares_socklen_t size,
                   void*) { return ::connect(fd, to, size); },
    .arecvfrom = [](ares_socket_t fd, void* to, std::size_t size, int flags, sockaddr* from, ares_socklen_t* from_size,
                    void*) -> ares_ssize_t { return ::recvfrom(fd, to, size, flags, from, from_size); },
    .asendv = [](ares_socket_t fd, const iovec* pieces, int count, void*) -> ares_ssize_t {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces);
      message.msg_iovlen = static_cast<std::size_t>(count);
      return ::sendmsg(fd, &message, MSG_NOSIGNAL);
    },
};

// The search goes on after these, as that of the C library does. c-ares reports SERVFAIL of all servers as
// ARES_ECONNREFUSED.
bool may_exist_elsewhere(int status) noexcept {
  switch (status) {
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_ESERVFAIL:
    case ARES_EREFUSED:
    case ARES_ENOTIMP:
    case ARES_ECONNREFUSED:
    case ARES_EBADNAME: return true;  // A domain makes the name longer than a name may be.
    default: return false;
  }
}

}  // namespace

Result<void> DnsChannel::open(const ResolverOptions& options) {
  if (const int status = library_ready(); status != ARES_SUCCESS) return failed("", status);
  // c-ares gets full names only: its own search ends at SERVFAIL.
  TRY(search_, read_search_domains("/etc/resolv.conf"));
  ares_options with{};
  with.timeout = first_timeout_ms;
  with.tries = tries;
  with.sock_state_cb = &DnsChannel::on_socket;
  with.sock_state_cb_data = this;
  char dns_only[] = "b";
  with.lookups = dns_only;
  with.ndomains = 0;
  with.flags = ARES_FLAG_NOSEARCH;
  with.ndots = 0;
  int mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS | ARES_OPT_DOMAINS |
             ARES_OPT_FLAGS | ARES_OPT_NDOTS;
#ifdef ARES_OPT_QUERY_CACHE
  with.qcache_max_ttl = 0;  // The caller decides when it asks again. c-ares would repeat old answers from 1.31 on.
  mask |= ARES_OPT_QUERY_CACHE;
#endif
  ares_channel channel = nullptr;
  const int status = ares_init_options(&channel, &with, mask);
  if (status != ARES_SUCCESS) return failed("", status);
  channel_ = channel;
  ares_set_socket_functions(channel_, &socket_functions, nullptr);
  if (!options.servers.empty()) {
    if (const int set = ares_set_servers_ports_csv(channel_, options.servers.c_str()); set != ARES_SUCCESS) {
      return failed("name servers '" + options.servers + "': ", set);
    }
  }
  detail::LoopAccess::add_user(loop_, *this);
  user_ = true;
  return {};
}

DnsChannel::~DnsChannel() {
  closing_ = true;
  if (channel_ != nullptr) ares_destroy(std::exchange(channel_, nullptr));
  if (user_) detail::LoopAccess::remove_user(loop_, *this);
}

void DnsChannel::on_loop_end() noexcept {
  user_ = false;
  timer_.stop();
  retire();  // This may destroy the channel.
}

// ---- Questions ----

void DnsChannel::ask(Asker& asker, const HostPort& where) {
  auto search = std::make_shared<Search>();
  search->asker = &asker;
  search->names = names_of(where);
  ask_for_next(search);
  begin_ticks();
  begin_waiting();
}

void DnsChannel::begin_ticks() noexcept {
  kept_ = shared_from_this();
  idle_since_ = {};
  timer_.start(loop_, loop_.now() + tick);
}

std::vector<HostPort> DnsChannel::names_of(const HostPort& where) const {
  std::vector<HostPort> names;
  const auto dots = static_cast<std::size_t>(std::ranges::count(where.host, '.'));
  if (!where.host.ends_with('.')) {
    for (const std::string& domain : search_.domains) {
      names.push_back({where.host + (domain.starts_with('.') ? "" : ".") + domain, where.port});
    }
  }
  names.insert(dots >= search_.dots_min ? names.begin() : names.end(), where);
  return names;
}

void DnsChannel::ask_for_next(const std::shared_ptr<Search>& search) {
  for (const int family : {AF_INET6, AF_INET}) {
    auto question = std::make_unique<Question>();
    *question = {this, search, family, search->names[search->at]};
    waiting_.push_back(std::move(question));
  }
}

void DnsChannel::begin_waiting() {
  while (open_ < open_max && !waiting_.empty()) {
    const HostPort where = waiting_.front()->where;
    questions_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    ++open_;
    Question& question = *questions_.back();
    ares_addrinfo_hints hints{};
    hints.ai_family = question.family;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = ARES_AI_NUMERICSERV;
    // The question may be answered, and end, within this call.
    ares_getaddrinfo(channel_, where.host.c_str(), where.port.c_str(), &hints, &DnsChannel::on_answer, &question);
  }
}

void DnsChannel::withdraw(Asker& asker) noexcept {
  std::erase_if(waiting_, [&](const auto& one) { return one->search->asker == &asker; });
  for (const auto& one : questions_) {
    if (one->search == nullptr || one->search->asker != &asker) continue;
    one->search.reset();
    ++withdrawn_;
  }
  cancel_if_all_withdrawn();
}

// Nobody waits for an answer, so the sockets are closed.
void DnsChannel::cancel_if_all_withdrawn() noexcept {
  if (withdrawn_ != 0 && withdrawn_ == open_) ares_cancel(channel_);
}

void DnsChannel::ask_records(RecordAsker& asker, const std::string& name, int type) {
  if (open_ >= open_max) return asker.on_records({.type = type, .why = "too many questions are open"});
  auto question = std::make_unique<RecordQuestion>();
  *question = {this, &asker, type};
  record_questions_.push_back(std::move(question));
  ++open_;
  begin_ticks();
  // The question may be answered, and end, within this call.
  ares_query(channel_, name.c_str(), internet_class, type, &DnsChannel::on_records, record_questions_.back().get());
}

void DnsChannel::withdraw_records(RecordAsker& asker) noexcept {
  for (const auto& one : record_questions_) {
    if (one->asker != &asker) continue;
    one->asker = nullptr;
    ++withdrawn_;
  }
  cancel_if_all_withdrawn();
}

// Called by c-ares, as on_answer().
void DnsChannel::on_records(void* at, int status, int, unsigned char* message, int bytes) noexcept {
  DnsChannel& self = *static_cast<RecordQuestion*>(at)->channel;
  if (self.closing_) return;
  const auto place = std::ranges::find(self.record_questions_, at, [](const auto& one) -> void* { return one.get(); });
  const std::unique_ptr<RecordQuestion> question = std::move(*place);
  self.record_questions_.erase(place);
  --self.open_;
  if (question->asker == nullptr) {
    --self.withdrawn_;
    return;
  }
  Records records{.type = question->type, .why = ares_strerror(status)};
  records.may_exist_elsewhere = may_exist_elsewhere(status);
  if (status == ARES_SUCCESS && message != nullptr && bytes > 0) {
    records.kind = Records::Kind::found;
    records.message = {reinterpret_cast<const std::byte*>(message), static_cast<std::size_t>(bytes)};
  } else if (status == ARES_ENODATA || status == ARES_ENOTFOUND) {
    records.kind = Records::Kind::absent;
  }
  question->asker->on_records(records);
}

// Called by c-ares: no exception may leave it, and the channel must not be destroyed within it.
void DnsChannel::on_answer(void* at, int status, int, ares_addrinfo* result) noexcept {
  const std::unique_ptr<ares_addrinfo, decltype(&ares_freeaddrinfo)> held(result, &ares_freeaddrinfo);
  DnsChannel& self = *static_cast<Question*>(at)->channel;
  if (self.closing_) return;
  const auto place =
      std::find_if(self.questions_.begin(), self.questions_.end(), [&](const auto& one) { return one.get() == at; });
  const std::unique_ptr<Question> question = std::move(*place);
  *place = std::move(self.questions_.back());
  self.questions_.pop_back();
  --self.open_;
  if (question->search == nullptr) {
    --self.withdrawn_;
    return;
  }
  std::vector<SocketAddress> found;
  try {
    for (const ares_addrinfo_node* node = result == nullptr ? nullptr : result->nodes;
         node != nullptr && found.size() < AddressList::addresses_max; node = node->ai_next) {
      SocketAddress address;
      if (node->ai_addrlen > sizeof address.storage) continue;
      std::memcpy(&address.storage, node->ai_addr, node->ai_addrlen);
      address.size = static_cast<socklen_t>(node->ai_addrlen);
      found.push_back(address);
    }
    self.on_answer(question->search, question->family, status, std::move(found));
  } catch (const std::exception&) {
    question->search->asker->on_answer(question->family, ARES_ENOMEM, {});
  }
}

void DnsChannel::on_answer(const std::shared_ptr<Search>& search, int family, int status,
                           std::vector<SocketAddress> found) {
  const std::size_t place = family == AF_INET6 ? 0 : 1;
  search->status[place] = status;
  search->found |= status == ARES_SUCCESS;
  // Addresses of one family do not wait for the other one.
  if (status == ARES_SUCCESS) search->asker->on_answer(family, status, std::move(found));
  if (!search->status[0] || !search->status[1]) return;
  const auto failed = [&](std::size_t at) { return *search->status[at] != ARES_SUCCESS; };
  for (std::size_t i = 0; i < 2; ++i) {
    if (search->worst[i] == ARES_SUCCESS || search->worst[i] == ARES_ENOTFOUND) search->worst[i] = *search->status[i];
  }
  const bool next = !search->found && search->at + 1 < search->names.size() &&
                    may_exist_elsewhere(*search->status[0]) && may_exist_elsewhere(*search->status[1]);
  if (next) {
    ++search->at;
    search->status = {};
    return ask_for_next(search);
  }
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    if (failed(i)) search->asker->on_answer(i == 0 ? AF_INET6 : AF_INET, search->worst[i], {});
  }
}

// ---- Progress ----

void DnsChannel::process(int readable, int writable) noexcept {
  ares_process_fd(channel_, readable, writable);
  try {
    begin_waiting();
  } catch (const std::exception&) {
    // There is no memory. The next tick tries again, and each asker has its own deadline.
  }
}

void DnsChannel::on_tick() noexcept {
  process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    if (watches_[i]->open) process(watches_[i]->fd, ARES_SOCKET_BAD);
  }
  std::erase_if(watches_, [](const auto& watch) { return !watch->open; });
  // Askers complete no question here, so the list does not change.
  for (const auto& question : questions_) {
    if (question->search != nullptr) question->search->asker->on_tick();
  }
  if (open_ != 0 || !waiting_.empty()) {
    timer_.start(loop_, loop_.now() + tick);
  } else if (idle_since_ == Time{}) {
    idle_since_ = loop_.now();
    timer_.start(loop_, loop_.after(idle_max));
  } else {
    retire();  // This may destroy the channel.
  }
}

void DnsChannel::Watch::on_ready(exec::Readiness readiness) {
  if (!open) return;
  const int with = fd;
  owner.process(readiness.readable || readiness.hangup ? with : ARES_SOCKET_BAD,
                readiness.writable ? with : ARES_SOCKET_BAD);
}

void DnsChannel::on_socket(void* at, int fd, int readable, int writable) noexcept {
  DnsChannel& self = *static_cast<DnsChannel*>(at);
  const auto found = std::find_if(self.watches_.begin(), self.watches_.end(),
                                  [&](const auto& watch) { return watch->open && watch->fd == fd; });
  if (readable == 0 && writable == 0) {
    if (found == self.watches_.end()) return;
    // A call of the watch may be in progress, so the next tick destroys it.
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
    // If the poller accepts no more descriptors, the ticks suffice. If there is no memory for the watch, the question
    // times out.
  }
}

// ---- One channel for each loop ----

Result<std::shared_ptr<DnsChannel>> NameService::channel(Loop& loop) {
  struct stat configured{};
  if (options_.servers.empty() && stat("/etc/resolv.conf", &configured) != 0) configured = {};
  const auto unchanged = [&](const struct stat& seen) {
    return seen.st_ino == configured.st_ino && seen.st_size == configured.st_size &&
           seen.st_mtim.tv_sec == configured.st_mtim.tv_sec && seen.st_mtim.tv_nsec == configured.st_mtim.tv_nsec;
  };
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [&](const auto& one) { return one.second.channel.expired(); });
  Known& known = known_[&loop];
  if (std::shared_ptr<DnsChannel> channel = known.channel.lock()) {
    if (channel->usable() && unchanged(known.configured)) return channel;
    channel->retire();
  }
  auto channel = std::make_shared<DnsChannel>(loop);
  TRY(channel->open(options_));
  known = {channel, configured};
  return channel;
}

}  // namespace hawser::transport
