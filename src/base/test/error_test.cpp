#include "hawser/error.h"

#include <gtest/gtest.h>

#include <new>
#include <set>
#include <string>
#include <vector>

#include "base/log_line.h"
#include "hawser/log.h"

namespace hawser {
namespace {

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (std::uint16_t code = 0; code <= 16; ++code) {
    const std::string_view name = to_string(static_cast<ErrorCode>(code));
    EXPECT_NE(name, "unknown_code");
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(static_cast<ErrorCode>(17)), "unknown_code");
  EXPECT_EQ(to_string(ErrorCode::deadline_exceeded), "deadline_exceeded");
  EXPECT_EQ(to_string(ErrorCode::internal), "internal");
}

TEST(Error, DescribesItselfInALine) {
  const Error lost{ErrorCode::outcome_unknown, ErrorScope::connection, Initiator::peer, 0, "the peer closed"};
  EXPECT_EQ(lost.describe(), "outcome_unknown (connection, by the peer): the peer closed");
  EXPECT_EQ(Error::application(42, "no such row").describe(), "application 42 (call): no such row");
}

TEST(Error, MakersNameTheScope) {
  EXPECT_EQ(Error::of_call(ErrorCode::overloaded, "busy"),
            (Error{ErrorCode::overloaded, ErrorScope::call, Initiator::local, 0, "busy"}));
  EXPECT_EQ(Error::of_connection(ErrorCode::unavailable, "closed"),
            (Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, "closed"}));
  EXPECT_EQ(Error::of_transport(ErrorCode::not_sent, "broken"),
            (Error{ErrorCode::not_sent, ErrorScope::transport, Initiator::local, 0, "broken"}));
}

TEST(Error, MakersTakeAnotherInitiatorFirst) {
  for (const Initiator side : {Initiator::local, Initiator::peer}) {
    EXPECT_EQ(Error::of_call(side, ErrorCode::protocol_error, "bad header"),
              (Error{ErrorCode::protocol_error, ErrorScope::call, side, 0, "bad header"}));
    EXPECT_EQ(Error::of_connection(side, ErrorCode::protocol_error, "unknown frame"),
              (Error{ErrorCode::protocol_error, ErrorScope::connection, side, 0, "unknown frame"}));
    EXPECT_EQ(Error::of_transport(side, ErrorCode::unavailable, "it broke"),
              (Error{ErrorCode::unavailable, ErrorScope::transport, side, 0, "it broke"}));
  }
}

TEST(Error, FailMakesItTheOutcome) {
  const auto refuse = []() -> Result<int> { return fail(Error::of_transport(ErrorCode::unavailable, "no device")); };
  EXPECT_EQ(refuse().error(), Error::of_transport(ErrorCode::unavailable, "no device"));
  const Result<int> shorter = fail(ErrorCode::overloaded, "busy");
  EXPECT_EQ(shorter.error(), Error::of_call(ErrorCode::overloaded, "busy"));
}

TEST(Error, SaysWhetherTheCallWasExecuted) {
  for (const ErrorCode code : {ErrorCode::overloaded, ErrorCode::not_sent, ErrorCode::unavailable,
                               ErrorCode::unknown_method, ErrorCode::signature_mismatch}) {
    EXPECT_TRUE((Error{.code = code}.not_executed())) << to_string(code);
  }
  for (const ErrorCode code : {ErrorCode::outcome_unknown, ErrorCode::deadline_exceeded, ErrorCode::cancelled,
                               ErrorCode::application, ErrorCode::internal}) {
    EXPECT_FALSE((Error{.code = code}.not_executed())) << to_string(code);
  }
}

TEST(Log, StderrTakesWhatIsSeriousEnough) {
  testing::internal::CaptureStderr();
  const LogSink log = stderr_log();
  log(LogLevel::info, "exec", "quiet");
  log(LogLevel::warning, "exec", "loud");
  no_log()(LogLevel::error, "exec", "nobody hears");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "hawser warning [exec] loud\n");
}

TEST(Log, LinesWhoseSinkThrowsAreLostAndCounted) {
  std::vector<std::string> lines;
  int throws = 3;
  const LogSink log([&](LogLevel level, std::string_view component, std::string_view text) {
    if (throws > 0) {
      --throws;
      throw std::bad_alloc();
    }
    lines.push_back(std::string(to_string(level)) + " " + std::string(component) + ": " + std::string(text));
  });
  log(LogLevel::info, "rpc", "one");
  log(LogLevel::info, "rpc", "two");  // The line about the first one throws, too.
  log_line(log, LogLevel::info, "rpc", []() -> std::string { throw std::bad_alloc(); });
  EXPECT_EQ(throws, 1);
  EXPECT_TRUE(lines.empty());
  throws = 0;
  log_line(log, LogLevel::info, "rpc", [] { return std::string("four"); });
  log(LogLevel::info, "rpc", "five");
  EXPECT_EQ(lines, (std::vector<std::string>{"error log: the log lost 3 lines: it threw, or had no memory",
                                             "info rpc: four", "info rpc: five"}));
}

TEST(Log, NoTextIsMadeForASinkThatDiscards) {
  log_line(no_log(), LogLevel::info, "rpc", []() -> std::string {
    ADD_FAILURE() << "made";
    return {};
  });
}

// A text may quote what a peer has sent.
TEST(Log, StderrGetsOneLineForEachText) {
  testing::internal::CaptureStderr();
  stderr_log()(LogLevel::error, "rpc", "the server said: no\nhawser error [rpc] forged\x1b[2J \x7f\u00fc");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "hawser error [rpc] the server said: no?hawser error [rpc] forged?[2J ?\u00fc\n");
}

}  // namespace
}  // namespace hawser
