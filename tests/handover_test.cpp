// Processes of a server that take over from each other while clients call, and processes that try to disturb it.
#include "hawser/handover.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "hawser/client_pool.h"
#include "hawser/runtime.h"
#include "hawser/transport/transport.h"
#include "tests/child_program.h"
#include "tests/handover/handlers.h"
#include "tests/raw_peer.h"
#include "tests/testing.h"
#include "transport/network.h"

namespace hawser::handover_tests {

using namespace testing_tools;

Task<std::uint64_t> number_of_process(Context&, std::uint64_t) { co_return 0; }

std::uint64_t bytes_of(Context& context, std::uint64_t) { return context.attachment().size(); }

namespace {

// ---- Processes ----

struct Carried {
  std::string name;
  bool over_unix = false;
  std::vector<std::string> transports;  // One pool for each.
};

TransportOptions only(const std::string& transport) {
  TransportOptions options{.enabled = {}, .required = transport};
  if (transport == "shm") options.enable(shm());
  if (transport == "ucx") options.enable(ucx());
  return options;
}

// Returns why the transport cannot be used here; empty if it can.
std::string why_absent(const std::string& transport) {
  if (transport == "stream") return {};
  Loop loop({.log = no_log()});
  for (const auto& one : Runtime::process_default()->network()->transports(only(transport))) {
    if (const auto end = one->attach(loop); !end) return end.error().text;
  }
  return {};
}

// The number of upgrades of each case. 100 and more by hand.
std::uint64_t upgrades() {
  const char* const given = std::getenv("HAWSER_TEST_UPGRADES");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 4;
}

// Waits without a limit: processes may start slowly. ctest ends a test that hangs.
template <class Condition>
Task<void> until(Loop& loop, Condition condition) {
  while (!condition()) co_await loop.sleep(1ms);
}

// Calls in a closed loop.
struct Callers {
  static constexpr int each_pool = 16;

  void spawn_on(const std::shared_ptr<ClientPool>& pool) {
    for (int i = 0; i < each_pool; ++i) {
      last.push_back(0);
      scope.spawn(call_until_end(pool, last.back()));
    }
  }
  Task<void> call_until_end(std::shared_ptr<ClientPool> pool, std::uint64_t& last_number) {
    while (!end) {
      const Result<std::uint64_t> number = co_await pool->call<number_of_process>(++issued);
      if (!number) {
        errors.push_back(number.error().describe());
        co_return;
      }
      ++answered;
      last_number = std::max(last_number, *number);
    }
  }
  bool all_reached(std::uint64_t number) const {
    return !errors.empty() || std::ranges::all_of(last, [&](std::uint64_t one) { return one >= number; });
  }

  bool end = false;
  std::uint64_t issued = 0;
  std::uint64_t answered = 0;
  std::list<std::uint64_t> last;  // For each caller: the number of the process that answered last.
  std::vector<std::string> errors;
  Scope scope;
};

class HandoverProcesses : public testing::TestWithParam<Carried> {
 protected:
  void start(std::uint64_t number) {
    const std::string output = (folder.path() / std::to_string(number)).string();
    const std::string wanted =
        GetParam().over_unix ? "unix:" + (folder.path() / "served").string() : std::string("127.0.0.1:0");
    processes.emplace_back().start(
        std::string(HANDOVER_SERVER) + " " + wanted + " " + path() + " " + std::to_string(number), output);
  }
  std::string path() const { return (folder.path() / "handover").string(); }
  // Returns the word after `name` in the output of a process; empty if it is not there.
  static std::string word_after(const ChildProgram& process, const std::string& name) {
    const std::string text = process.output();
    const std::size_t at = text.find(name + " ");
    const std::size_t end = text.find_first_of(" \n", at + name.size() + 1);
    return at == std::string::npos || end == std::string::npos
               ? std::string()
               : text.substr(at + name.size() + 1, end - at - name.size() - 1);
  }

  const TemporaryFolder folder;
  std::list<ChildProgram> processes;
};
INSTANTIATE_TEST_SUITE_P(Carried, HandoverProcesses,
                         testing::Values(Carried{"tcp_and_shm", false, {"stream", "shm"}},
                                         Carried{"unix", true, {"stream"}}, Carried{"ucx", false, {"ucx"}}),
                         [](const auto& one) { return one.param.name; });

TEST_P(HandoverProcesses, NoCallFails) {
  for (const std::string& transport : GetParam().transports) {
    if (const std::string why = why_absent(transport); !why.empty()) GTEST_SKIP() << why;
  }
  Loop loop;
  start(1);
  loop.run([](HandoverProcesses& test, Loop& here, auto start_next,
              auto word) -> Task<void> {
    co_await until(here, [&] { return !word(1, "serving at").empty(); });
    const std::string address = word(1, "serving at");
    Callers callers;
    for (const std::string& transport : test.GetParam().transports) {
      callers.spawn_on(ClientPool::create(
          here, address,
          {.client = {.connect_timeout = patience, .call_timeout = forever, .transports = only(transport)},
           .wait_max = forever}));
    }
    co_await until(here, [&] { return callers.all_reached(1); });
    for (std::uint64_t number = 2; number <= upgrades() + 1 && callers.errors.empty(); ++number) {
      start_next(number);
      co_await until(here, [&] { return callers.all_reached(number); });
      co_await until(here, [&] { return !callers.errors.empty() || !word(number - 1, "refused").empty(); });
    }
    if (!callers.errors.empty()) {  // The processes that would follow do not exist.
      ADD_FAILURE() << callers.errors.front();
      co_return;
    }
    callers.end = true;
    co_await callers.scope.join();
    start_next(upgrades() + 2);  // So that the last one writes its counters.
    co_await until(here, [&] { return !word(upgrades() + 1, "refused").empty(); });
    EXPECT_TRUE(callers.errors.empty()) << callers.errors.front();
    EXPECT_EQ(callers.answered, callers.issued);
    std::uint64_t executed = 0;
    for (std::uint64_t number = 1; number <= upgrades() + 1; ++number) {
      executed += std::strtoull(word(number, "executed").c_str(), nullptr, 10);
      EXPECT_EQ(word(number, "refused"), "0") << "process " << number;
    }
    EXPECT_EQ(executed, callers.answered);
  }(
                             *this, loop, [this](std::uint64_t number) { start(number); },
                             [this](std::uint64_t number, const std::string& name) {
                               return word_after(*std::next(processes.begin(), static_cast<long>(number) - 1), name);
                             }));
}

// ---- In this process ----

class HandoverInOneProcess : public testing::Test {
 protected:
  struct Generation {
    explicit Generation(std::string address, LogSink log = no_log())
        : server({.listen = std::move(address), .loop = {.log = std::move(log)}, .handshake_timeout = patience}) {
      server.register_handler<number_of_process>();
      server.register_handler<bytes_of>({.receive_into = [this](const IncomingPayload&) {
        selected.set_value();
        return Buffer::of_foreign(Bytes(memory), [] {});
      }});
    }
    Result<void> begin(Predecessor before, Duration ready_max = patience) {
      Result<std::unique_ptr<Handover>> begun =
          Handover::begin(server, std::move(before),
                          {.ready_max = ready_max, .leave_max = patience, .taken = [this] { taken.set_value(); }});
      if (!begun) return std::unexpected(begun.error());
      handover = std::move(*begun);
      return {};
    }
    std::vector<std::byte> memory = std::vector<std::byte>(payload_bytes);
    std::promise<void> selected;  // The memory, for one call of bytes_of().
    Server server;
    std::promise<void> taken;
    std::unique_ptr<Handover> handover;
  };
  static constexpr std::size_t payload_bytes = std::size_t{1} << 20;

  void SetUp() override {
    ASSERT_TRUE(first.server.start());
    auto nobody = Predecessor::ask(path);
    ASSERT_TRUE(nobody) << nobody.error().describe();
    EXPECT_FALSE(nobody->exists());
    EXPECT_EQ(nobody->listen("127.0.0.1:7"), "127.0.0.1:7");
    const Result<void> begun = first.begin(std::move(*nobody));
    ASSERT_TRUE(begun) << begun.error().describe();
  }
  Result<std::uint64_t> call() const {
    return sync_wait([](std::string address) -> Task<Result<std::uint64_t>> {
      Client client({.connect_timeout = patience});
      if (auto connected = co_await client.connect(address); !connected) co_return std::unexpected(connected.error());
      co_return co_await client.call<number_of_process>(std::uint64_t{1});
    }(first.server.address()));
  }
  // A process that may not be a server.
  Descriptor connect_raw() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
    return socket;
  }
  static void say(const Descriptor& to, std::string_view text) {
    ASSERT_EQ(::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Returns what comes until `bytes` or the end. Descriptors that come with it are closed by the kernel.
  static std::string hear(const Descriptor& from, std::size_t bytes) {
    std::string text(bytes, '\0');
    const ssize_t heard = ::recv(from.get(), text.data(), bytes, MSG_WAITALL);
    text.resize(heard > 0 ? static_cast<std::size_t>(heard) : 0);
    return text;
  }
  void start_after_first(std::unique_ptr<Generation>& second) {
    auto before = Predecessor::ask(path);
    ASSERT_TRUE(before) << before.error().describe();
    ASSERT_TRUE(before->exists());
    second = std::make_unique<Generation>(before->listen("127.0.0.1:0"));
    ASSERT_TRUE(second->server.start());
    EXPECT_EQ(second->server.address(), first.server.address());
    const Result<void> begun = second->begin(std::move(*before));
    ASSERT_TRUE(begun) << begun.error().describe();
  }
  // The first server still hands over.
  void takes_over() {
    std::unique_ptr<Generation> second;
    start_after_first(second);
    ASSERT_NE(second, nullptr);
    first.taken.get_future().wait();
    EXPECT_OK(call());
    EXPECT_EQ(second->server.counters().calls, 1U);
  }

  const TemporaryFolder folder;
  const std::string path = (folder.path() / "handover").string();
  std::atomic<bool> log_throws = false;
  Generation first{"127.0.0.1:0", [this](LogLevel, std::string_view component, std::string_view) {
                     if (component == "handover" && log_throws) throw std::runtime_error("the disk is full");
                   }};
};

TEST_F(HandoverInOneProcess, TakesOver) {
  EXPECT_OK(call());
  takes_over();
}

// A client sends a request before it has read the GOAWAY.
TEST_F(HandoverInOneProcess, RequestsOnTheirWayAreServed) {
  using Facts = detail::MethodFacts<number_of_process>;
  RawSocket client = RawSocket::greeted(first.server.address());
  std::unique_ptr<Generation> second;
  start_after_first(second);
  ASSERT_TRUE(client.receive_frame(wire::FrameKind::goaway));
  client.send(message({.method = Facts::id, .signature = Facts::signature}, std::string(8, '\0')));
  const std::optional<RawFrame> answer = client.receive_frame();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.kind, wire::FrameKind::response) << answer->body;
  client.send(message({.kind = wire::FrameKind::goaway}));
  EXPECT_TRUE(client.closed_without_reset());
  client.close();
  first.taken.get_future().wait();
  EXPECT_EQ(first.server.counters().calls_refused, 0U);
}

TEST_F(HandoverInOneProcess, PayloadsOnTheirWayAreReceivedInTheirPlace) {
  using Facts = detail::MethodFacts<bytes_of>;
  RawSocket client = RawSocket::greeted(first.server.address());
  std::unique_ptr<Generation> second;
  start_after_first(second);
  ASSERT_TRUE(client.receive_frame(wire::FrameKind::goaway));
  const std::string payload(payload_bytes, 'x');
  const Octets request = message({.method = Facts::id,
                                  .signature = Facts::signature,
                                  .attachment_bytes = static_cast<std::uint32_t>(payload_bytes)},
                                 std::string(8, '\0'), payload);
  client.send(testing_tools::first(request, request.size() - payload.size()));
  EXPECT_EQ(first.selected.get_future().wait_for(patience), std::future_status::ready) << "before the payload";
  client.send(Bytes(request).last(payload.size()));
  const std::optional<RawFrame> answer = client.receive_frame();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.kind, wire::FrameKind::response) << answer->body;
  client.send(message({.kind = wire::FrameKind::goaway}));
  EXPECT_TRUE(client.closed_without_reset());
  client.close();
  first.taken.get_future().wait();
}

TEST_F(HandoverInOneProcess, HandshakesThatHaveBegunAreCompleted) {
  RawSocket client = RawSocket::connected_to(first.server.address());
  ASSERT_TRUE(soon([&] { return first.server.counters().connections_accepted == 1; }));
  std::unique_ptr<Generation> second;
  start_after_first(second);
  client.send(wire::encode_hello(usual_hello()));
  const Result<wire::Hello> hello = client.receive_hello();
  ASSERT_TRUE(hello) << error_of(hello);
  EXPECT_FALSE(hello->refusal);
  ASSERT_TRUE(client.receive_frame(wire::FrameKind::goaway));
  client.send(message({.kind = wire::FrameKind::goaway}));
  EXPECT_TRUE(client.closed_without_reset());
  client.close();
  first.taken.get_future().wait();
}

TEST_F(HandoverInOneProcess, ASuccessorThatDoesNotServeChangesNothing) {
  {
    const Descriptor dies_early = connect_raw();
    ASSERT_TRUE(dies_early.valid());
  }
  {
    const Descriptor dies_late = connect_raw();
    say(dies_late, "take   1");
    EXPECT_EQ(hear(dies_late, 8), "sockets1");
  }
  EXPECT_OK(call());
  takes_over();
}

TEST_F(HandoverInOneProcess, ASuccessorThatEndsWhenItIsReadyChangesNothing) {
  std::optional<Descriptor> earlier = connect_raw();  // The server accepts the next one when this one has ended.
  const Descriptor peer = connect_raw();
  say(peer, "take   1ready  1");
  ASSERT_EQ(::shutdown(peer.get(), SHUT_WR), 0);
  earlier.reset();
  EXPECT_EQ(hear(peer, 8), "sockets1");
  EXPECT_EQ(hear(peer, 8), "");  // Not "left   1".
  EXPECT_OK(call());
  takes_over();
}

TEST_F(HandoverInOneProcess, ALogThatThrowsChangesNothing) {
  log_throws = true;
  EXPECT_OK(call());
  takes_over();
}

// The predecessor leaves, so nobody else would serve.
TEST_F(HandoverInOneProcess, AServerThatCannotOfferItsSocketsServes) {
  auto before = Predecessor::ask(path);
  ASSERT_TRUE(before) << before.error().describe();
  Generation second(before->listen("127.0.0.1:0"));
  ASSERT_TRUE(second.server.start());
  const std::string elsewhere = folder.path().string() + ".elsewhere";
  std::filesystem::rename(folder.path(), elsewhere);
  const Result<void> begun = second.begin(std::move(*before));
  std::filesystem::rename(elsewhere, folder.path());
  ASSERT_TRUE(begun) << error_of(begun);
  first.taken.get_future().wait();
  EXPECT_OK(call());
}

TEST_F(HandoverInOneProcess, TooManySocketsAreNotHandedOver) {
  std::string names = "fd:";
  for (int i = 0; i < 65; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(::listen(fd, 1), 0) << std::strerror(errno);
    names += (i == 0 ? "" : ",") + std::to_string(fd);
  }
  Generation many(names);
  ASSERT_TRUE(many.server.start());
  const std::string other = (folder.path() / "other").string();
  auto nobody = Predecessor::ask(other);
  ASSERT_TRUE(nobody) << nobody.error().describe();
  ASSERT_TRUE(many.begin(std::move(*nobody)));
  EXPECT_ERROR(Predecessor::ask(other), unavailable, "more than 64");
}

TEST_F(HandoverInOneProcess, WrongWordsEndTheConversation) {
  for (const std::string_view wrong : {"take   2", "ready  1", "GET / HTTP/1.1\r\n\r\n"}) {
    const Descriptor peer = connect_raw();
    say(peer, wrong);
    EXPECT_EQ(hear(peer, 8), "") << wrong;
  }
  const Descriptor peer = connect_raw();
  say(peer, "take   1");
  EXPECT_EQ(hear(peer, 8), "sockets1");
  say(peer, "done   1");
  EXPECT_EQ(hear(peer, 8), "");
  EXPECT_OK(call());
  takes_over();
}

TEST_F(HandoverInOneProcess, ALateSuccessorLearnsThatItIsLate) {
  first.handover.reset();
  auto nobody = Predecessor::ask(path);
  ASSERT_TRUE(nobody) << nobody.error().describe();
  ASSERT_TRUE(first.begin(std::move(*nobody), 1ms));
  auto before = Predecessor::ask(path);
  ASSERT_TRUE(before) << before.error().describe();
  Generation second(before->listen("127.0.0.1:0"));
  ASSERT_TRUE(second.server.start());
  // When the first one answers another process, it has given this one up.
  const Descriptor other = connect_raw();
  say(other, "take   1");
  EXPECT_EQ(hear(other, 8), "sockets1");
  const Result<void> begun = second.begin(std::move(*before));
  EXPECT_ERROR(begun, unavailable, "has not left");
  second.server.stop(Duration::zero());
  EXPECT_OK(call());
}

TEST_F(HandoverInOneProcess, AServerThatStopsOffersNothing) {
  first.server.stop(Duration::zero());
  EXPECT_ERROR(Predecessor::ask(path), unavailable, "has not passed its sockets");
  first.handover.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(HandoverInOneProcess, AChildByForkChangesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    first.handover.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  takes_over();
}

TEST_F(HandoverInOneProcess, PathsAreAbsolute) {
  EXPECT_ERROR(Predecessor::ask("handover"), invalid_argument, "begins with /");
  EXPECT_ERROR(Predecessor::ask("/" + std::string(200, 'x')), invalid_argument, "");
}

// Runs `attempt` as a user without rights. Returns its result.
template <class F>
int as_another_user(F attempt) {
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65'533) != 0 || setuid(65'533) != 0) _exit(99);
    _exit(attempt());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Opens `folder` to all users. False if this user cannot do so, or may not act as another one, or if a folder above is
// closed.
bool others_reach(const std::filesystem::path& folder) {
  return geteuid() == 0 && chmod(folder.c_str(), 0755) == 0 &&
         as_another_user([&] { return access(folder.c_str(), X_OK) == 0 ? 0 : 1; }) == 0;
}

TEST_F(HandoverInOneProcess, AnotherUserGetsNothing) {
  if (!others_reach(folder.path())) GTEST_SKIP() << "no other user can be played here";
  EXPECT_EQ(as_another_user([this] { return connect_raw().valid() ? 1 : 0; }), 0) << "the file is open to others";
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(as_another_user([this] {
              const Descriptor peer = connect_raw();
              if (!peer.valid()) return 1;
              static_cast<void>(::send(peer.get(), "take   1", 8, MSG_NOSIGNAL));
              return hear(peer, 8).empty() ? 0 : 2;
            }),
            0);
  takes_over();
}

TEST_F(HandoverInOneProcess, AnotherUserIsNotAPredecessor) {
  if (!others_reach(folder.path())) GTEST_SKIP() << "no other user can be played here";
  const std::string trap = (folder.path() / "trap").string();
  ASSERT_EQ(mkdir(trap.c_str(), 0777), 0);
  ASSERT_EQ(chmod(trap.c_str(), 0777), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (trap + "/s").c_str(), sizeof address.sun_path - 1);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65'533) != 0 || setuid(65'533) != 0) _exit(99);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool listens =
        ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && ::listen(fd, 8) == 0;
    const char mark = listens ? 'y' : 'n';
    static_cast<void>(!write(ends[1], &mark, 1));
    pause();
    _exit(0);
  }
  ::close(ends[1]);
  char mark = 0;
  ASSERT_EQ(read(ends[0], &mark, 1), 1);
  EXPECT_EQ(mark, 'y');
  EXPECT_ERROR(Predecessor::ask(trap + "/s"), permission_denied, "belongs neither to this user nor to root");
  ::kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ::close(ends[0]);
}

}  // namespace
}  // namespace hawser::handover_tests
