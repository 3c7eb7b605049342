#include "transport/tcp/dns_channel.h"

#include <ares.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

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

int library_ready() noexcept {
  static std::once_flag once;
  static int status = ARES_SUCCESS;
  std::call_once(once, [] { status = ares_library_init(ARES_LIB_INIT_ALL); });
  return status;
}

std::unexpected<Error> failed(std::string_view what, int status) {
  return fail(ErrorCode::unavailable, std::string(what) + ares_strerror(status), ErrorScope::connection);
}

}  // namespace

Result<void> DnsChannel::open(const ResolverOptions& options) {
  if (const int status = library_ready(); status != ARES_SUCCESS) return failed("", status);
  ares_options with{};
  with.timeout = first_timeout_ms;
  with.tries = tries;
  with.sock_state_cb = &DnsChannel::on_socket;
  with.sock_state_cb_data = this;
  char dns_only[] = "b";
  with.lookups = dns_only;
  ares_channel channel = nullptr;
  const int status = ares_init_options(&channel, &with,
                                       ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS);
  if (status != ARES_SUCCESS) return failed("", status);
  channel_ = channel;
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
  Timer::stop();
  retire();  // This may destroy the channel.
}

// ---- Questions ----

void DnsChannel::ask(Asker& asker, const HostPort& where) {
  for (const int family : {AF_INET6, AF_INET}) {
    auto question = std::make_unique<Question>();
    *question = {this, &asker, family, where};
    waiting_.push_back(std::move(question));
  }
  kept_ = shared_from_this();
  idle_since_ = {};
  begin_waiting();
  if (open_ != 0) Timer::start(loop_, loop_.now() + tick);
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
  std::erase_if(waiting_, [&](const auto& one) { return one->asker == &asker; });
  for (const auto& one : questions_) {
    if (one->asker != &asker) continue;
    one->asker = nullptr;
    ++withdrawn_;
  }
  // Nobody waits for an answer, so the sockets are closed.
  if (withdrawn_ != 0 && withdrawn_ == open_) ares_cancel(channel_);
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
  if (question->asker == nullptr) {
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
  } catch (const std::exception&) {
    status = ARES_ENOMEM;
  }
  question->asker->on_answer(question->family, status, std::move(found));
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

void DnsChannel::fire(Timer& timer) noexcept { static_cast<DnsChannel&>(timer).on_tick(); }

void DnsChannel::on_tick() noexcept {
  process(ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  for (std::size_t i = 0; i < watches_.size(); ++i) {
    if (watches_[i]->open) process(watches_[i]->fd, ARES_SOCKET_BAD);
  }
  std::erase_if(watches_, [](const auto& watch) { return !watch->open; });
  // Askers complete no question here, so the list does not change.
  for (const auto& question : questions_) {
    if (question->asker != nullptr) question->asker->on_tick();
  }
  if (open_ != 0 || !waiting_.empty()) {
    Timer::start(loop_, loop_.now() + tick);
  } else if (idle_since_ == Time{}) {
    idle_since_ = loop_.now();
    Timer::start(loop_, loop_.after(idle_max));
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
  if (Result<void> opened = channel->open(options_); !opened) return std::unexpected(std::move(opened.error()));
  known = {channel, configured};
  return channel;
}

}  // namespace hawser::transport
