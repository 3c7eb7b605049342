#pragma once

#include <sys/stat.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/hosts_file.h"
#include "transport/tcp/socket.h"

struct ares_addrinfo;
struct ares_channeldata;

namespace hawser::transport {

struct ResolverOptions {
  // Name servers as "address:port,...". Empty: those of /etc/resolv.conf.
  std::string servers = {};
  std::string hosts_file = "/etc/hosts";
};

// Asks name servers on behalf of all resolvers of a loop, without blocking it. Loop's thread only.
class DnsChannel final : Timer, detail::LoopUser, public std::enable_shared_from_this<DnsChannel> {
 public:
  // Questions that wait for an answer at once. Further ones wait for these.
  static constexpr std::size_t open_max = 512;
  // A channel with more questions that nobody waits for is given up.
  static constexpr std::size_t withdrawn_max = open_max / 4;
  // How long a channel without a question is kept for the next one.
  static constexpr Duration idle_max = std::chrono::seconds(10);

  // Whoever asks.
  class Asker {
   public:
    // The addresses of `family`; the status is one of c-ares'. Perhaps from within ask().
    virtual void on_answer(int family, int status, std::vector<SocketAddress> found) noexcept = 0;
    // Some time has passed.
    virtual void on_tick() noexcept = 0;

   protected:
    ~Asker() = default;
  };

  explicit DnsChannel(Loop& loop) noexcept : Timer(&DnsChannel::fire), loop_(loop) {}
  DnsChannel(const DnsChannel&) = delete;
  DnsChannel& operator=(const DnsChannel&) = delete;
  ~DnsChannel();

  // Once, before all else.
  Result<void> open(const ResolverOptions& options);
  // Asks for both families. `asker` hears of it until withdraw().
  void ask(Asker& asker, const HostPort& where);
  void withdraw(Asker& asker) noexcept;

  // False if the next asker takes another one.
  bool usable() const noexcept { return withdrawn_ < withdrawn_max; }
  // No new asker comes: it ends with the last one.
  void retire() noexcept { kept_.reset(); }
  std::size_t open_questions() const noexcept { return open_; }

 private:
  // A socket of c-ares'.
  struct Watch final : exec::Watcher {
    Watch(DnsChannel& of, int socket) noexcept : owner(of), fd(socket) {}
    void on_ready(exec::Readiness readiness) override;
    DnsChannel& owner;
    const int fd;
    bool open = true;
    bool watched = false;  // By the poller; otherwise looked at by every tick only.
  };
  // Lives until c-ares has answered.
  struct Question {
    DnsChannel* channel = nullptr;
    Asker* asker = nullptr;  // Null once withdrawn.
    int family = 0;
    HostPort where;
  };

  void begin_waiting();
  void process(int readable, int writable) noexcept;
  void on_loop_end() noexcept override;
  static void on_socket(void* self, int fd, int readable, int writable) noexcept;
  static void on_answer(void* question, int status, int timeouts, ares_addrinfo* result) noexcept;
  static void fire(Timer& timer) noexcept;
  void on_tick() noexcept;

  Loop& loop_;
  ares_channeldata* channel_ = nullptr;
  std::vector<std::unique_ptr<Question>> questions_;  // Asked.
  std::deque<std::unique_ptr<Question>> waiting_;     // Not asked yet.
  std::vector<std::unique_ptr<Watch>> watches_;
  std::size_t open_ = 0;       // Of questions_,
  std::size_t withdrawn_ = 0;  // of which nobody waits for so many.
  Time idle_since_{};
  std::shared_ptr<DnsChannel> kept_;  // Itself, until it has been idle for long.
  bool user_ = false;                 // Of loop_.
  bool closing_ = false;
};

// What the resolvers of all loops share. Any thread.
class NameService {
 public:
  explicit NameService(ResolverOptions options) : options_(std::move(options)), hosts_(options_.hosts_file) {}

  HostsFile& hosts() noexcept { return hosts_; }
  // The channel of `loop`, which runs on this thread. A new one once /etc/resolv.conf has changed.
  Result<std::shared_ptr<DnsChannel>> channel(Loop& loop);

 private:
  struct Known {
    std::weak_ptr<DnsChannel> channel;
    struct stat configured{};  // /etc/resolv.conf, when the channel was opened.
  };

  const ResolverOptions options_;
  HostsFile hosts_;
  std::mutex mutex_;  // Guards the rest.
  std::unordered_map<Loop*, Known> known_;
};

}  // namespace hawser::transport
