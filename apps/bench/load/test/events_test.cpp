#include "bench/load/events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace hawser::bench {
namespace {

template <class T>
T back(const T& event) {
  const std::optional<Event> decoded = decode_event(encode_event(event));
  return decoded ? std::get<T>(*decoded) : T{};
}

TEST(Events, ComeBackAsTheyWere) {
  EXPECT_EQ(back(Listening{"127.0.0.1:9000"}).address, "127.0.0.1:9000");
  EXPECT_EQ(back(CellBegun{7}).index, 7u);
  EXPECT_EQ(back(Failed{"two\nlines and a \"quote\""}).text, "two\nlines and a \"quote\"");
  const Connected connected = back(Connected{{"epoll", "spin", "0.1.0"}, "io_uring", "shm"});
  EXPECT_EQ(connected.transport, "shm");
  EXPECT_EQ(connected.server.poller, "epoll");
  EXPECT_EQ(connected.server.wait, "spin");
  EXPECT_EQ(connected.server.version, "0.1.0");
  EXPECT_EQ(connected.client_poller, "io_uring");
}

TEST(Events, CarryAWholeResult) {
  const CellResult sent{.cell = {"tcp", Mode::connections, Wait::event, 4096, 16},
                        .seconds = 1.5,
                        .calls = 30'000,
                        .errors = 2,
                        .p50_us = 10.25,
                        .p90_us = 20.5,
                        .p99_us = 30.75,
                        .p999_us = 41,
                        .server_cpu_s = 0.5,
                        .client_cpu_s = 0.75,
                        .calls_at_once = 8,
                        .first_error = "overloaded"};
  const CellResult got = back(sent);
  EXPECT_EQ(got.cell.transport, "tcp");
  EXPECT_EQ(got.cell.mode, Mode::connections);
  EXPECT_EQ(got.cell.wait, Wait::event);
  EXPECT_EQ(got.cell.size_bytes, 4096u);
  EXPECT_EQ(got.cell.concurrency, 16u);
  EXPECT_EQ(got.seconds, 1.5);
  EXPECT_EQ(got.calls, 30'000u);
  EXPECT_EQ(got.errors, 2u);
  EXPECT_EQ(got.p50_us, 10.25);
  EXPECT_EQ(got.p90_us, 20.5);
  EXPECT_EQ(got.p99_us, 30.75);
  EXPECT_EQ(got.p999_us, 41);
  EXPECT_EQ(got.server_cpu_s, 0.5);
  EXPECT_EQ(got.client_cpu_s, 0.75);
  EXPECT_EQ(got.calls_at_once, 8u);
  EXPECT_EQ(got.first_error, "overloaded");
}

TEST(Events, AreOneLineEach) { EXPECT_EQ(encode_event(Failed{"two\nlines"}).find('\n'), std::string::npos); }

TEST(Events, RefuseWhatIsNone) {
  for (const char* line : {"", "listening", "{}", "[]", R"({"event":"dance"})", R"({"event":"listening"})",
                           R"({"event":"begun","index":"x"})", R"({"event":"cell","cell":{"mode":"pipeline"}})"}) {
    EXPECT_FALSE(decode_event(line)) << line;
  }
}

TEST(EventWriter, NoticesThatNobodyReads) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const EventWriter writer(ends[1]);
  EXPECT_TRUE(writer.write(CellBegun{1}));
  close(ends[0]);
  EXPECT_FALSE(writer.write(CellBegun{2}));
  close(ends[1]);
  std::signal(SIGPIPE, before);
}

}  // namespace
}  // namespace hawser::bench
