#include "hawser/structured_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "hawser/recent_log.h"

namespace hawser {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::string_view parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr std::string_view trace_text = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr auto noon = std::chrono::sys_days(std::chrono::year(2026) / 11 / 23) + 12h + 3min + 4s + 50us;
// A line feed, an escape sequence, a quote, bytes that are not UTF-8, U+0085, U+2028, and text of two bytes.
constexpr std::string_view hostile = "a\nb\x1b[2J\"\\\x80\xff\xc2\x85\xe2\x80\xa8\xc3\xbc\x7f";

LogRecord record_of(std::string_view text, const TraceContext* trace = nullptr) {
  return {noon, LogLevel::warning, "rpc", text, trace};
}

// The two ends of a pipe; the reading end does not block.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    reading = Descriptor(ends[0]);
    writing = Descriptor(ends[1]);
  }
  std::string text() const {
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(reading.get(), bytes.data(), bytes.size());
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))};
  }
  Descriptor reading;
  Descriptor writing;
};

// The receiving end of a journal.
class JournalSocket {
 public:
  explicit JournalSocket(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    ::unlink(path.c_str());
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("bind " + path);
    }
  }
  // The fields of the next entry, parsed by the rules of the native protocol; empty if there is none.
  std::map<std::string, std::string> next() const {
    std::array<char, 65536> bytes;
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    std::map<std::string, std::string> fields;
    std::string_view left(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    while (!left.empty()) {
      const std::size_t end = left.find('\n');
      const std::size_t equals = left.substr(0, end).find('=');
      if (equals != std::string_view::npos) {
        fields[std::string(left.substr(0, equals))] = left.substr(equals + 1, end - equals - 1);
        left.remove_prefix(end + 1);
        continue;
      }
      const std::string name(left.substr(0, end));
      left.remove_prefix(end + 1);
      std::uint64_t length = 0;
      for (unsigned i = 0; i < 8; ++i) length |= std::uint64_t{static_cast<unsigned char>(left[i])} << (8 * i);
      fields[name] = left.substr(8, length);
      EXPECT_EQ(left.at(8 + length), '\n');
      left.remove_prefix(8 + length + 1);
    }
    return fields;
  }

 private:
  Descriptor socket_;
};

TEST(StructuredLog, TextHasTimeLevelComponentAndTrace) {
  EXPECT_EQ(text_line(record_of("slow")), "2026-11-23T12:03:04.000050Z warning [rpc] slow\n");
  const auto trace = TraceContext::parse(parent);
  EXPECT_EQ(text_line(record_of("slow", &*trace)),
            "2026-11-23T12:03:04.000050Z warning [rpc] slow trace_id=4bf92f3577b34da6a3ce929d0e0e4736 "
            "span_id=00f067aa0ba902b7\n");
}

TEST(StructuredLog, JsonHasTimeLevelComponentAndTrace) {
  EXPECT_EQ(
      json_line(record_of("slow")),
      "{\"time\":\"2026-11-23T12:03:04.000050Z\",\"level\":\"warning\",\"component\":\"rpc\",\"message\":\"slow\"}\n");
  const auto trace = TraceContext::parse(parent);
  EXPECT_THAT(json_line(record_of("slow", &*trace)),
              EndsWith("\"message\":\"slow\",\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736\","
                       "\"span_id\":\"00f067aa0ba902b7\"}\n"));
}

TEST(StructuredLog, TimesBeforeTheEpochAreRight) {
  LogRecord record = record_of("old");
  record.at = std::chrono::sys_days(std::chrono::year(1969) / 12 / 31) + 23h + 59min + 59s + 999'999us;
  EXPECT_THAT(text_line(record), StartsWith("1969-12-31T23:59:59.999999Z "));
}

TEST(StructuredLog, HostileTextsAreOneHarmlessLine) {
  EXPECT_THAT(text_line(record_of(hostile)), EndsWith("[rpc] a?b?[2J\"\\????\xc3\xbc?\n"));
  EXPECT_THAT(json_line(record_of(hostile)),
              EndsWith("\"message\":\"a\\nb\\u001b[2J\\\"\\\\\\ufffd\\ufffd\\u0085\\u2028\xc3\xbc\\u007f\"}\n"));
  LogRecord component = record_of("x");
  component.component = "a]\n\"b";
  EXPECT_THAT(text_line(component), EndsWith(" [a]?\"b] x\n"));
  EXPECT_THAT(json_line(component), HasSubstr("\"component\":\"a]\\n\\\"b\","));
  const std::string zero("a\0b", 3);
  EXPECT_THAT(json_line(record_of(zero)), HasSubstr("a\\u0000b"));
}

TEST(StructuredLog, LongTextsAreCutAtACharacter) {
  std::string text(log_text_bytes_max - 4, 'x');
  text += "\xc3\xbc\xc3\xbc\xc3\xbc";
  const std::string line = text_line(record_of(text));
  EXPECT_THAT(line, EndsWith("x...\n"));
  EXPECT_LE(line.size(), log_text_bytes_max + 64);
  const std::string whole(log_text_bytes_max, 'y');
  EXPECT_THAT(text_line(record_of(whole)), EndsWith("y\n"));
  // Each byte becomes six.
  EXPECT_LE(json_line(record_of(std::string(100'000, '\x01'))).size(), 6 * log_text_bytes_max + 128);
}

TEST(StructuredLog, WritesLinesOfTheLevelAndAbove) {
  const Pipe pipe;
  const LogSink log = json_log(LogLevel::warning, pipe.writing.get());
  log(LogLevel::info, "rpc", "quiet");
  EXPECT_EQ(pipe.text(), "");
  log(LogLevel::warning, "rpc", "loud");
  EXPECT_THAT(pipe.text(), EndsWith("\"message\":\"loud\"}\n"));
  text_log(LogLevel::debug, pipe.writing.get())(LogLevel::debug, "rpc", "whisper");
  EXPECT_THAT(pipe.text(), EndsWith("Z debug [rpc] whisper\n"));
  // A full pipe and a closed one are not a reason to end.
  text_log(LogLevel::debug, -1)(LogLevel::error, "rpc", "nowhere");
}

TEST(StructuredLog, TheTraceIsThatOfTheSink) {
  std::vector<std::string> seen;
  const LogSink plain = [&seen](LogLevel, std::string_view, std::string_view text) {
    seen.push_back(std::string(text) + " " + (trace_of_line() == nullptr ? "-" : trace_of_line()->trace_id_text()));
  };
  RecentLog recent(plain, LogLevel::info);
  const LogSink traced = with_trace(recent.sink(), TraceContext::parse(parent));
  traced(LogLevel::info, "shop", "one");
  recent.sink()(LogLevel::info, "shop", "two");
  with_trace(plain, std::nullopt)(LogLevel::info, "shop", "three");
  // A sink within a sink: the inner line belongs to the inner trace, what follows to the outer one again.
  const TraceContext other = TraceContext::begin(true);
  const LogSink outer = [&](LogLevel level, std::string_view component, std::string_view text) {
    with_trace(plain, other)(level, component, text);
    plain(level, component, text);
  };
  with_trace(outer, TraceContext::parse(parent))(LogLevel::info, "shop", "four");
  EXPECT_THAT(seen, ElementsAre("one " + std::string(trace_text), "two -", "three -", "four " + other.trace_id_text(),
                                "four " + std::string(trace_text)));
  EXPECT_EQ(trace_of_line(), nullptr);
}

TEST(StructuredLog, JournalEntriesHaveTheirFields) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal";
  const JournalSocket journal(path);
  const Result<LogSink> log = journal_log({.least = LogLevel::info, .identifier = "shop", .socket = path});
  ASSERT_TRUE(log) << log.error().text;
  (*log)(LogLevel::debug, "rpc", "quiet");
  with_trace(*log, TraceContext::parse(parent))(LogLevel::error, "rpc", "two\nPRIORITY=0\nlines");
  const auto fields = journal.next();
  EXPECT_EQ(fields, (std::map<std::string, std::string>{{"MESSAGE", "two\nPRIORITY=0\nlines"},
                                                        {"PRIORITY", "3"},
                                                        {"SYSLOG_IDENTIFIER", "shop"},
                                                        {"HAWSER_COMPONENT", "rpc"},
                                                        {"TRACE_ID", std::string(trace_text)},
                                                        {"SPAN_ID", "00f067aa0ba902b7"}}));
  (*log)(LogLevel::info, "rpc\nPRIORITY=0", hostile);
  const auto harmless = journal.next();
  EXPECT_EQ(harmless.at("MESSAGE"), "a\nb?[2J\"\\????\xc3\xbc?");
  EXPECT_EQ(harmless.at("PRIORITY"), "6");
  EXPECT_EQ(harmless.at("HAWSER_COMPONENT"), "rpc?PRIORITY=0");
  EXPECT_TRUE(journal.next().empty());
}

TEST(StructuredLog, AnAbsentJournalIsAnError) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal";
  const Result<LogSink> log = journal_log({.socket = path});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code, ErrorCode::unavailable);
  EXPECT_THAT(log.error().text, HasSubstr(path));
  EXPECT_EQ(journal_log({.socket = ""}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(journal_log({.socket = std::string(200, 'x')}).error().code, ErrorCode::invalid_argument);
}

TEST(StructuredLog, ARestartedJournalGetsTheNumberOfLostLines) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal";
  auto journal = std::make_unique<JournalSocket>(path);
  const Result<LogSink> log = journal_log({.socket = path});
  ASSERT_TRUE(log) << log.error().text;
  journal.reset();
  for (int i = 0; i < 3; ++i) (*log)(LogLevel::warning, "rpc", "lost");
  journal = std::make_unique<JournalSocket>(path);
  (*log)(LogLevel::warning, "rpc", "found");
  EXPECT_EQ(journal->next()["MESSAGE"], "lost 3 lines: the journal did not accept more");
  EXPECT_EQ(journal->next()["MESSAGE"], "found");
}

TEST(StructuredLog, AFullJournalDoesNotBlock) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal";
  const JournalSocket journal(path);
  const Result<LogSink> log = journal_log({.socket = path});
  ASSERT_TRUE(log) << log.error().text;
  constexpr int lines = 10'000;
  for (int i = 0; i < lines; ++i) (*log)(LogLevel::warning, "rpc", "line");
  int accepted = 0;
  while (!journal.next().empty()) ++accepted;
  ASSERT_LT(accepted, lines);
  (*log)(LogLevel::warning, "rpc", "last");
  EXPECT_EQ(journal.next()["MESSAGE"],
            "lost " + std::to_string(lines - accepted) + " lines: the journal did not accept more");
  EXPECT_EQ(journal.next()["MESSAGE"], "last");
}

class LogRate : public testing::Test {
 protected:
  LogSink sink(unsigned per_place, unsigned all) {
    return rate_limited(
        [this](LogLevel level, std::string_view component, std::string_view text) {
          lines.push_back(std::string(to_string(level)) + " " + std::string(component) + ": " + std::string(text) +
                          (trace_of_line() == nullptr ? "" : " traced"));
        },
        {.lines_per_place = per_place, .lines = all, .now = [this] { return now; }});
  }
  std::vector<std::string> lines;
  std::chrono::steady_clock::time_point now{1h};
};

TEST_F(LogRate, ALimitOfNoLinesIsRefusedWithItsValues) {
  EXPECT_NO_THROW(sink(1, 1));
  for (const auto& [per_place, all] : {std::pair(0U, 7U), std::pair(7U, 0U)}) {
    try {
      sink(per_place, all);
      ADD_FAILURE() << per_place << " " << all;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()), "hawser: LogRateLimit::lines_per_place is " + std::to_string(per_place) +
                                               ", lines is " + std::to_string(all) +
                                               ", and both must be at least 1; no_log() writes nothing");
    }
  }
}

TEST_F(LogRate, ASecondHasSoManyLinesOfAPlace) {
  const LogSink log = sink(2, 100);
  for (int i = 0; i < 5; ++i) log(LogLevel::info, "rpc", "connection " + std::to_string(i) + " ended");
  log(LogLevel::info, "tcp", "another place");
  log(LogLevel::warning, "rpc", "connection 7 ended");  // Another level is another place.
  EXPECT_THAT(lines, ElementsAre("info rpc: connection 0 ended", "info rpc: connection 1 ended",
                                 "info tcp: another place", "warning rpc: connection 7 ended"));
  lines.clear();
  now += 1s;
  with_trace(log, TraceContext::parse(parent))(LogLevel::info, "tcp", "another place");
  EXPECT_THAT(lines, ElementsAre("info rpc: 3 more suppressed: \"connection ...\"", "info tcp: another place traced"));
  lines.clear();
  log(LogLevel::info, "rpc", "connection 5 ended");
  EXPECT_THAT(lines, ElementsAre("info rpc: connection 5 ended"));
}

TEST_F(LogRate, ASecondHasSoManyLinesOfAllPlaces) {
  const LogSink log = sink(2, 3);
  for (char c = 'a'; c < 'z'; ++c) log(LogLevel::info, "rpc", std::string("text ") + c);
  EXPECT_THAT(lines, SizeIs(3));
}

TEST_F(LogRate, AHostileTextDoesNotMakeMorePlaces) {
  const LogSink log = sink(1, 1'000'000);
  std::string text = "aaaa";
  for (int i = 0; i < 10'000; ++i) {
    for (std::size_t at = 0; ++text[at] > 'z'; ++at) text[at] = 'a';
    log(LogLevel::info, "rpc", text);
  }
  EXPECT_LE(lines.size(), 128U);
}

TEST_F(LogRate, TheEndReportsWhatWasSuppressed) {
  {
    const LogSink log = sink(1, 100);
    const LogSink copy = log;
    for (int i = 0; i < 3; ++i) copy(LogLevel::error, "rpc", "failed");
  }
  EXPECT_THAT(lines, ElementsAre("error rpc: failed", "error rpc: 2 more suppressed: \"failed...\""));
}

TEST_F(LogRate, ThreadsShareTheLimit) {
  std::atomic<int> written = 0;
  const LogSink log = rate_limited([&](LogLevel, std::string_view, std::string_view) { ++written; },
                                   {.lines_per_place = 50, .lines = 100, .now = [this] { return now; }});
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int line = 0; line < 100; ++line) log(LogLevel::info, "rpc", "same");
    });
  }
  threads.clear();
  EXPECT_EQ(written, 50);
}

TEST_F(LogRate, ALimitOfZeroIsRefused) {
  EXPECT_THROW(sink(0, 1), std::invalid_argument);
  EXPECT_THROW(sink(1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace hawser
