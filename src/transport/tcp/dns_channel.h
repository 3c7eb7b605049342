#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/hosts_file.h"
#include "transport/tcp/search_domains.h"
#include "transport/tcp/socket.h"

struct ares_addrinfo;
struct ares_channeldata;

namespace hawser::transport {

struct ResolverOptions {
  // Name servers as "address:port,...". Empty: the servers in /etc/resolv.conf.
  std::string servers = {};
  std::string hosts_file = "/etc/hosts";
};

// Asks name servers on behalf of all resolvers of a loop, without blocking the loop. Loop's thread only.
class DnsChannel final : detail::LoopUser, public std::enable_shared_from_this<DnsChannel> {
 public:
  // Limit of questions that wait for an answer at the same time. Further questions wait for these.
  static constexpr std::size_t open_max = 512;
  // A channel with more questions that nobody waits for is not used for new resolvers.
  static constexpr std::size_t withdrawn_max = open_max / 4;
  // Time for which a channel without a question is kept for the next one.
  static constexpr Duration idle_max = std::chrono::seconds(10);

  // Receives the answers to a question.
  class Asker {
   public:
    // Delivers the addresses of `family`. `status` is a status of c-ares. May be called from within ask().
    virtual void on_answer(int family, int status, std::vector<SocketAddress> found) noexcept = 0;
    // Called periodically while a question is open.
    virtual void on_tick() noexcept = 0;

   protected:
    ~Asker() = default;
  };

  // The answer to a question for records of one type.
  struct Records {
    enum class Kind : std::uint8_t {
      found,
      absent,  // There is no such name, or it has no such records.
      failed,  // The servers do not answer, or cannot.
    };
    int type = 0;
    Kind kind = Kind::failed;
    bool may_exist_elsewhere = false;  // The search goes on with the next name.
    std::string_view why = {};         // The reason of `absent` and `failed`; a literal.
    Bytes message = {};                // The whole answer, if `found` (RFC 1035, section 4). Valid within the call.
  };
  class RecordAsker {
   public:
    // May be called from within ask_records(). Must not destroy the channel.
    virtual void on_records(const Records& records) noexcept = 0;

   protected:
    ~RecordAsker() = default;
  };

  explicit DnsChannel(Loop& loop) : loop_(loop) {}
  DnsChannel(const DnsChannel&) = delete;
  DnsChannel& operator=(const DnsChannel&) = delete;
  ~DnsChannel();

  // Called once, before all other functions.
  Result<void> open(const ResolverOptions& options);
  // Asks for both families. `asker` is called until withdraw().
  void ask(Asker& asker, const HostPort& where);
  void withdraw(Asker& asker) noexcept;
  // Asks for the records of `type` of exactly this name. `asker` is called once, unless withdraw_records() comes
  // before.
  void ask_records(RecordAsker& asker, const std::string& name, int type);
  void withdraw_records(RecordAsker& asker) noexcept;
  // The names by which a host is asked for, in this order: with the search domains, and alone.
  std::vector<HostPort> names_of(const HostPort& where) const;

  // False if the next asker should use another channel.
  bool usable() const noexcept { return withdrawn_ < withdrawn_max; }
  // No new asker will come: the channel ends with its last one.
  void retire() noexcept { kept_.reset(); }
  std::size_t open_questions() const noexcept { return open_; }

 private:
  // A socket of c-ares.
  struct Watch final : exec::Watcher {
    Watch(DnsChannel& of, int socket) noexcept : owner(of), fd(socket) {}
    void on_ready(exec::Readiness readiness) override;
    DnsChannel& owner;
    const int fd;
    bool open = true;
    bool watched = false;  // The poller watches it. Otherwise only the ticks check it.
  };
  // A name in the search domains. Both families are asked for one name
  // before the next name, because the names of two domains are two hosts.
  struct Search {
    Asker* asker = nullptr;
    std::vector<HostPort> names;  // In the order in which they are asked for.
    std::size_t at = 0;
    std::array<std::optional<int>, 2> status;  // Answers for the name `at`, of IPv6 and IPv4.
    std::array<int, 2> worst{};                // Answers for the names before it: the first that is not "no such name".
    bool found = false;
  };
  // Exists until c-ares has answered.
  struct Question {
    DnsChannel* channel = nullptr;
    std::shared_ptr<Search> search;  // Null once withdrawn.
    int family = 0;
    HostPort where;
  };

  // Exists until c-ares has answered.
  struct RecordQuestion {
    DnsChannel* channel = nullptr;
    RecordAsker* asker = nullptr;  // Null once withdrawn.
    int type = 0;
  };

  void cancel_if_all_withdrawn() noexcept;
  void begin_ticks() noexcept;
  void ask_for_next(const std::shared_ptr<Search>& search);
  void on_answer(const std::shared_ptr<Search>& search, int family, int status, std::vector<SocketAddress> found);
  void begin_waiting();
  void process(int readable, int writable) noexcept;
  void on_loop_end() noexcept override;
  static void on_socket(void* self, int fd, int readable, int writable) noexcept;
  static void on_answer(void* question, int status, int timeouts, ares_addrinfo* result) noexcept;
  static void on_records(void* question, int status, int timeouts, unsigned char* message, int bytes) noexcept;
  void on_tick() noexcept;

  Loop& loop_;
  SearchDomains search_;
  ares_channeldata* channel_ = nullptr;
  std::vector<std::unique_ptr<Question>> questions_;  // Questions that were asked.
  std::deque<std::unique_ptr<Question>> waiting_;     // Questions that were not asked yet.
  std::vector<std::unique_ptr<RecordQuestion>> record_questions_;
  std::vector<std::unique_ptr<Watch>> watches_;
  std::size_t open_ = 0;       // Number of questions_ and record_questions_ that c-ares has not answered.
  std::size_t withdrawn_ = 0;  // Number of these for which nobody waits.
  Time idle_since_{};
  std::shared_ptr<DnsChannel> kept_;  // The channel itself, until it has been idle for idle_max.
  bool user_ = false;                 // It is registered as a user of loop_.
  bool closing_ = false;
  MemberTimer<&DnsChannel::on_tick> timer_{*this};
};

// The part of resolving that all loops share. Any thread.
class NameService {
 public:
  explicit NameService(ResolverOptions options) : options_(std::move(options)), hosts_(options_.hosts_file) {}

  HostsFile& hosts() noexcept { return hosts_; }
  // Returns the channel of `loop`, which runs on this thread. Makes a new one after /etc/resolv.conf has changed.
  Result<std::shared_ptr<DnsChannel>> channel(Loop& loop);

 private:
  struct Known {
    std::weak_ptr<DnsChannel> channel;
    struct stat configured{};  // State of /etc/resolv.conf when the channel was opened.
  };

  const ResolverOptions options_;
  HostsFile hosts_;
  std::mutex mutex_;  // Guards the members below.
  std::unordered_map<Loop*, Known> known_;
};

}  // namespace hawser::transport
