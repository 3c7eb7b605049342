#include "hawser/structured_log.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/decimal_text.h"
#include "base/line_trace.h"
#include "base/log_output.h"
#include "base/try.h"

namespace hawser {
namespace {

LogRecord record_of(LogLevel level, std::string_view component, std::string_view text) {
  return {std::chrono::system_clock::now(), level, component, text, trace_of_line()};
}

LogSink line_log(LogLevel least, int descriptor, std::string (*line_of)(const LogRecord&)) {
  return [=, output = std::make_shared<LineOutput>(descriptor)](LogLevel level, std::string_view component,
                                                                std::string_view text) {
    if (level < least) return;
    output->write(line_of(record_of(level, component, text)), [&](std::uint64_t lost) {
      return line_of({std::chrono::system_clock::now(), LogLevel::warning, "log",
                      "lost " + count_text(lost, "line") + ": the descriptor of the log did not take more"});
    });
  };
}

class Journal {
 public:
  Journal(DatagramSender sender, JournalOptions options) : sender_(std::move(sender)), options_(std::move(options)) {}

  void write(LogLevel level, std::string_view component, std::string_view text) {
    if (level < options_.least) return;
    const std::uint64_t lost = lost_.exchange(0, std::memory_order_relaxed);
    if (lost != 0 && !send({std::chrono::system_clock::now(), LogLevel::warning, "log",
                            "lost " + count_text(lost, "line") + ": the journal did not accept more", nullptr})) {
      lost_.fetch_add(lost + 1, std::memory_order_relaxed);
      return;
    }
    if (!send(record_of(level, component, text))) lost_.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  bool send(const LogRecord& record) const { return sender_.send(journal_entry(record, options_.identifier)); }

  const DatagramSender sender_;
  const JournalOptions options_;
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace

LogSink text_log(LogLevel least, int descriptor) { return line_log(least, descriptor, text_line); }
LogSink json_log(LogLevel least, int descriptor) { return line_log(least, descriptor, json_line); }

Result<LogSink> journal_log(JournalOptions options) {
  TRY(DatagramSender&& sender, DatagramSender::to(options.socket));
  return LogSink([journal = std::make_shared<Journal>(std::move(sender), std::move(options))](
                     LogLevel level, std::string_view component, std::string_view text) {
    journal->write(level, component, text);
  });
}

LogSink with_trace(LogSink sink, std::optional<TraceContext> trace) {
  if (!trace) return sink;
  return [sink = std::move(sink), trace = std::move(*trace)](LogLevel level, std::string_view component,
                                                             std::string_view text) {
    const LineTrace line(&trace);
    sink(level, component, text);
  };
}

}  // namespace hawser
