// Hawser's log in spdlog: the level, the component as the name of the logger, and the trace of a call.
#include <hawser/hawser.h>
#include <hawser/structured_log.h>
#include <hawser/trace.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

spdlog::level::level_enum level_of(hawser::LogLevel level) {
  switch (level) {
    case hawser::LogLevel::debug: return spdlog::level::debug;
    case hawser::LogLevel::info: return spdlog::level::info;
    case hawser::LogLevel::warning: return spdlog::level::warn;
    case hawser::LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Several loops share the sink, so `sink` must be one of spdlog's thread-safe ones (..._mt). The text goes to spdlog as
// an argument: a text of a peer that contains {} is not a format.
hawser::LogSink to_spdlog(spdlog::sink_ptr sink) {
  return [sink = std::move(sink)](hawser::LogLevel level, std::string_view component, std::string_view text) {
    if (!sink->should_log(level_of(level))) return;
    std::string line(text);
    // Texts may quote a peer. A line feed in them would forge a line of the log.
    for (char& c : line) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    if (const hawser::TraceContext* trace = hawser::trace_of_line()) {
      line += " trace_id=" + trace->trace_id_text() + " span_id=" + trace->span_id_text();
    }
    const spdlog::string_view_t name(component.data(), component.size());
    sink->log(spdlog::details::log_msg(name, level_of(level), spdlog::string_view_t(line.data(), line.size())));
  };
}

hawser::LogSink shop_log;

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
  const hawser::Result<std::string> reply = co_await client.call<buy>(options, "rope\nerror {}");
  co_return reply == "sold out" ? 0 : 1;
}

}  // namespace

int main() {
  // A program would give its own sink. This one keeps the lines, so that they can be checked below.
  std::ostringstream lines;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(lines);
  sink->set_pattern("%l [%n] %v");
  shop_log = to_spdlog(sink);

  const hawser::TraceContext trace = hawser::TraceContext::begin(true);
  {
    hawser::Server server({.loop = {.log = shop_log}});
    server.register_handler<buy>();
    if (auto started = server.start(); !started) {
      std::fprintf(stderr, "%s\n", started.error().describe().c_str());
      return 1;
    }
    if (hawser::sync_wait(talk(server.address(), trace)) != 0) return 1;
  }
  std::fputs(lines.str().c_str(), stdout);
  const bool found = lines.str().find("warning [shop] no rope?error {} is left trace_id=" + trace.trace_id_text()) !=
                     std::string::npos;
  return found ? 0 : 1;
}
