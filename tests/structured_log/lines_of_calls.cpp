// The library's own lines about a call have the trace of that call.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "hawser/authorization.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/recent_log.h"
#include "hawser/structured_log.h"
#include "hawser/trace.h"
#include "hawser/tracing.h"
#include "tests/raw_peer.h"

namespace hawser::lines_of_calls_test {

using namespace testing_tools;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
constexpr std::string_view trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr std::string_view span_id = "00f067aa0ba902b7";

std::string throws(std::string text) { throw std::runtime_error("thrown " + text); }
Task<std::string> throws_later(Context& context, std::string text) {
  co_await context.loop().sleep(1ms);
  throw std::runtime_error("thrown later " + text);
}
std::string throws_elsewhere(std::string text) { throw std::runtime_error("thrown elsewhere " + text); }
std::string blocks(std::string text) {
  std::this_thread::sleep_for(30ms);
  return text;
}
std::string quick(std::string text) { return text; }

struct Line {
  std::string text;
  std::string trace;
};

class LinesOfCalls : public ::testing::Test {
 protected:
  // The server writes lines until it has ended.
  ~LinesOfCalls() override { server.reset(); }
  LogSink sink() {
    return [this](LogLevel, std::string_view component, std::string_view text) {
      const TraceContext* const trace = trace_of_line();
      const std::lock_guard guard(lock_);
      lines_.push_back({std::string(component) + ": " + std::string(text),
                        trace == nullptr ? "none" : trace->trace_id_text() + "/" + trace->span_id_text()});
    };
  }
  // The traces of the lines with that part.
  std::vector<std::string> traces(std::string_view part) const {
    const std::lock_guard guard(lock_);
    std::vector<std::string> found;
    for (const Line& line : lines_) {
      if (line.text.find(part) != std::string::npos) found.push_back(line.trace);
    }
    return found;
  }
  void start(ServerOptions options = {}) {
    options.loop.log = log ? log : sink();
    if (options.loop.blocked_max != forever) options.loop.blocked_max = 10ms;
    server = std::make_unique<Server>(options);
    server->register_handler<throws, throws_later, blocks, quick>();
    server->register_handler<throws_elsewhere>(HandlerOptions{.offload = true});
    if (use) use(*server);
    Http routes;
    routes.route("GET", "/throws", [](HttpRequest&) -> Task<HttpResponse> {
      throw std::runtime_error("thrown by a route");
      co_return HttpResponse();
    });
    routes.route("GET", "/stream", [](HttpRequest&) -> Task<HttpResponse> {
      HttpResponse response;
      response.stream = [](HttpBodyWriter&) -> Task<void> {
        throw std::runtime_error("thrown by a stream");
        co_return;
      };
      co_return response;
    });
    server->enable(routes);
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // Calls the methods one after another over one connection.
  template <auto... methods>
  void call(const Metadata& metadata) {
    sync_wait(call_each(server->address(), metadata, {&LinesOfCalls::call_one<methods>...}), {.log = no_log()});
  }
  // Calls them with the trace, then without one.
  template <auto... methods>
  void call_all() {
    call<methods...>(traced);
    call<methods...>({});
  }
  using Call = Task<void> (*)(Client&, CallOptions);
  static Task<void> call_each(std::string address, Metadata metadata, std::vector<Call> calls) {
    Client client(*Loop::current());
    auto connected = co_await client.connect(address);
    REQUIRE_OK(connected);
    for (const Call one : calls) {
      CallOptions options;
      options.metadata = metadata;
      co_await one(client, std::move(options));
    }
  }
  template <auto method>
  static Task<void> call_one(Client& client, CallOptions options) {
    static_cast<void>(co_await client.call<method>(options, std::string("x")));
  }
  // Calls blocks() until a line about it exists: the loop writes at most one a second, and other work on a busy machine
  // may have caused the one of this second.
  bool blocked_line(const Metadata& metadata) {
    const std::size_t before = traces(blocked).size();
    return soon([&] {
      call<blocks>(metadata);
      return traces(blocked).size() > before;
    });
  }
  void get(std::string_view path, std::string_view fields) const {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" +
                         std::string(fields) + "\r\n"));
    socket.receive_all();
  }

  static constexpr std::string_view blocked = "the last call that began was of hawser::lines_of_calls_test::blocks";
  const Metadata traced = {{"traceparent", std::string(parent)}};
  LogSink log;  // Takes the place of sink().
  std::function<void(Server&)> use;
  std::unique_ptr<Server> server;

 private:
  mutable std::mutex lock_;
  std::vector<Line> lines_;
};

const std::string whole = std::string(trace_id) + "/" + std::string(span_id);

TEST_F(LinesOfCalls, AnExceptionHasTheTraceOfItsCall) {
  start();
  call_all<throws, throws_later, throws_elsewhere>();
  for (const std::string_view part : {"thrown x", "thrown later x", "thrown elsewhere x"}) {
    EXPECT_THAT(traces(part), testing::ElementsAre(whole, "none")) << part;
  }
}

TEST_F(LinesOfCalls, ABlockedLoopHasTheTraceOfTheCallThatBlockedIt) {
  start();
  ASSERT_TRUE(blocked_line(traced));
  EXPECT_EQ(traces(blocked).back(), whole);
  ASSERT_TRUE(blocked_line({}));  // The trace of an earlier call is not taken for that of this one.
  EXPECT_EQ(traces(blocked).back(), "none");
  ASSERT_TRUE(blocked_line({{"other", "metadata"}}));
  EXPECT_EQ(traces(blocked).back(), "none");
  Metadata longer = {{"long", std::string(20'000, 'l')}};
  longer.push_back(traced[0]);
  ASSERT_TRUE(blocked_line(longer));
  EXPECT_EQ(traces(blocked).back(), whole);
}

TEST_F(LinesOfCalls, TheSpanIsThatOfTheTracer) {
  const Tracer tracer({.ratio = 1});
  use = [&](Server& on) { on.use(tracer.server_spans()); };
  start();
  const Metadata sampled = {{"traceparent", std::string(parent.substr(0, 53)) + "01"}};
  call<throws, throws_later, throws_elsewhere>(sampled);
  call<throws, throws_later, throws_elsewhere>({});  // A trace begins here.
  get("/throws", "");
  ASSERT_TRUE(blocked_line(sampled));
  server.reset();  // All calls have ended.
  for (const std::string_view part :
       {std::string_view("thrown x"), std::string_view("thrown later x"), std::string_view("thrown elsewhere x"),
        std::string_view("thrown by a route"), blocked}) {
    ASSERT_FALSE(traces(part).empty()) << part;
    for (const std::string& trace : traces(part)) {
      EXPECT_THAT(trace, Not(HasSubstr(span_id))) << part;
      bool known = false;
      for (const Span& span : tracer.latest(10'000)) {
        TraceContext context;
        context.trace_id = span.trace_id;
        context.span_id = span.span_id;
        known |= context.trace_id_text() + "/" + context.span_id_text() == trace;
      }
      EXPECT_TRUE(known) << part << " " << trace;
    }
  }
}

TEST_F(LinesOfCalls, RefusedCallsAreAuditedWithTheirTrace) {
  use = [](Server& on) { on.use(Authorization().allow("nothing", anyone())); };
  start();
  call_all<quick>();
  EXPECT_THAT(traces("audit: refused"), testing::ElementsAre(whole, "none"));
}

TEST_F(LinesOfCalls, RoutesOfHttp) {
  start();
  const std::string field = "traceparent: " + std::string(parent) + "\r\n";
  for (const std::string_view path : {"/throws", "/stream"}) {
    get(path, field);
    get(path, "");
    get(path, "traceparent: " + std::string(parent.substr(0, 54)) + "\r\n");  // Malformed.
  }
  EXPECT_THAT(traces("thrown by a route"), testing::ElementsAre(whole, "none", "none"));
  EXPECT_THAT(traces("thrown by a stream"), testing::ElementsAre(whole, "none", "none"));
}

TEST_F(LinesOfCalls, TextJsonJournalAndPageShowTheTrace) {
  std::array<int, 4> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK), 0);
  ASSERT_EQ(::pipe2(ends.data() + 2, O_NONBLOCK), 0);
  const Descriptor text_end(ends[0]);
  const Descriptor text_begin(ends[1]);
  const Descriptor json_end(ends[2]);
  const Descriptor json_begin(ends[3]);
  const TemporaryFolder folder;
  const std::string path = folder.path() / "journal";
  const Descriptor journal(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(::bind(journal.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const Result<LogSink> to_journal = journal_log({.socket = path});
  ASSERT_TRUE(to_journal);
  const RecentLog recent([text = text_log(LogLevel::warning, text_begin.get()),
                          json = json_log(LogLevel::warning, json_begin.get()),
                          &to_journal](LogLevel level, std::string_view component, std::string_view line) {
    text(level, component, line);
    json(level, component, line);
    (*to_journal)(level, component, line);
  });
  ServerOptions options;
  log = recent.sink();
  options.loop.blocked_max = forever;
  start(options);
  call_all<throws>();
  server.reset();
  const auto read_all = [](int descriptor) {
    std::array<char, 65536> bytes;
    const ssize_t size = ::read(descriptor, bytes.data(), bytes.size());
    return std::string(bytes.data(), static_cast<std::size_t>(size < 0 ? 0 : size));
  };
  const std::string text = read_all(text_end.get());
  EXPECT_THAT(text, HasSubstr("thrown x trace_id=" + std::string(trace_id) + " span_id=" + std::string(span_id)))
      << text;
  EXPECT_THAT(read_all(json_end.get()), HasSubstr(R"("trace_id":")" + std::string(trace_id) + R"(","span_id":")" +
                                                  std::string(span_id) + R"(")"));
  EXPECT_THAT(read_all(journal.get()), AllOf(HasSubstr("\nTRACE_ID=" + std::string(trace_id) + "\n"),
                                             HasSubstr("\nSPAN_ID=" + std::string(span_id) + "\n")));
  EXPECT_THAT(read_all(journal.get()), Not(HasSubstr("TRACE_ID")));  // The call without a trace.
  std::vector<std::string> kept;
  for (const RecentLog::Line& line : recent.lines(100)) {
    if (line.text.find("thrown x") != std::string::npos) kept.push_back(line.trace_id);
  }
  EXPECT_THAT(kept, testing::ElementsAre("", std::string(trace_id)));
}

}  // namespace hawser::lines_of_calls_test
