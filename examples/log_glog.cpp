// Hawser's log in glog: the level as glog's severity, the component and the trace of a call in the text.
#include <glog/logging.h>
#include <hawser/hawser.h>
#include <hawser/structured_log.h>
#include <hawser/trace.h>

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

// glog has no severity below INFO: debug lines go to INFO if `debug` is set.
hawser::LogSink to_glog(bool debug = false) {
  return [debug](hawser::LogLevel level, std::string_view component, std::string_view text) {
    if (level == hawser::LogLevel::debug && !debug) return;
    const google::LogSeverity severity = level == hawser::LogLevel::error     ? google::GLOG_ERROR
                                         : level == hawser::LogLevel::warning ? google::GLOG_WARNING
                                                                              : google::GLOG_INFO;
    std::string line = "[" + std::string(component) + "] " + std::string(text);
    // Texts may quote a peer. A line feed in them would forge a line of the log.
    for (char& c : line) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    if (const hawser::TraceContext* trace = hawser::trace_of_line()) {
      line += " trace_id=" + trace->trace_id_text() + " span_id=" + trace->span_id_text();
    }
    // glog shows the file and the line of the statement. They are not known here, so the component stands there.
    google::LogMessage("hawser", 0, severity).stream() << line;
  };
}

const hawser::LogSink shop_log = to_glog();

std::string buy(hawser::Context& context, std::string_view item) {
  const hawser::LogSink traced = hawser::with_trace(shop_log, hawser::trace_of(context.metadata()));
  traced(hawser::LogLevel::warning, "shop", "no " + std::string(item) + " is left");
  return "sold out";
}

hawser::Task<int> talk(std::string address, hawser::TraceContext trace) {
  hawser::Client client;
  if (auto connected = co_await client.connect(address); !connected) co_return 1;
  hawser::CallOptions options;
  trace.child().add_to(options);
  const hawser::Result<std::string> reply = co_await client.call<buy>(options, "rope\nerror");
  co_return reply == "sold out" ? 0 : 1;
}

// Keeps the lines, so that the example can check them. A program needs no such sink.
class KeptLines final : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char*, const char*, int, const google::LogMessageTime&,
            const char* message, size_t message_bytes) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(google::GetLogSeverityName(severity) + (" " + std::string(message, message_bytes)));
  }
  bool contains(const std::string& beginning) {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.starts_with(beginning)) return true;
    }
    return false;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace

int main(int, char** argv) {
  FLAGS_logtostderr = true;  // No files.
  google::InitGoogleLogging(argv[0]);
  KeptLines kept;
  google::AddLogSink(&kept);
  const hawser::TraceContext trace = hawser::TraceContext::begin(true);
  int status = 1;
  {
    hawser::Server server({.loop = {.log = shop_log}});
    server.register_handler<buy>();
    if (auto started = server.start(); started) {
      status = hawser::sync_wait(talk(server.address(), trace));
    } else {
      std::fprintf(stderr, "%s\n", started.error().describe().c_str());
    }
  }
  google::RemoveLogSink(&kept);
  if (!kept.contains("WARNING [shop] no rope?error is left trace_id=" + trace.trace_id_text())) status = 1;
  google::ShutdownGoogleLogging();
  return status;
}
