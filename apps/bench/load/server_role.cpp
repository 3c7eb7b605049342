#include "bench/load/server_role.h"

#include <signal.h>

#include <memory>

#include "bench/load/handlers.h"
#include "bench/load/observation.h"
#include "bench/load/protocols.h"
#include "bench/load/tls.h"
#include "bench/load/transport_choice.h"
#include "hawser/server.h"
#include "process/program.h"
#ifdef HAWSER_BENCH_PROTOBUF
#include "bench/load/protobuf_echo.h"
#endif

namespace hawser::bench {

bool play_server(const RunOptions& options, std::string_view transport, Wait wait, const std::string& listen,
                 const std::function<void(const Event&)>& notify) {
  // Blocked before the server's threads start, so that this thread alone receives these signals.
  const sigset_t ends = process::ending_signals();
  sigprocmask(SIG_BLOCK, &ends, nullptr);

  ServerOptions server_options;
  server_options.listen = listen;
  server_options.threads = options.server_threads;
  server_options.cpus = options.server_cpus;
  server_options.loop = options.loop(wait);
  server_options.message_bytes_max = size_bytes_max + 4096;
  server_options.calls_per_connection_max = concurrency_max;
  server_options.transports = server_transports(transport);
  server_options.security = server_security(options, transport);
#ifdef HAWSER_BENCH_PROTOBUF
  ProtobufEcho protobuf_echo;
#endif
  Server server(server_options);
  server.register_handler<echo, echo_task, ack, ack_task, usage, describe>();
#ifdef HAWSER_BENCH_PROTOBUF
  if (options.handler == HandlerKind::protobuf) server.add_service(&protobuf_echo);
#endif
  enable_baidu_std(server);
  enable_grpc(server);
  std::unique_ptr<Observation> observation;
  if (options.observed) {
    observation = observe(server);
    if (observation == nullptr) {
      notify(Failed{"--observed: this build has no pages: it needs the component observe"});
      return false;
    }
  } else {
    enable_http(server);
  }
  if (const Result<void> started = server.start(); !started) {
    notify(Failed{"cannot listen at " + listen + ": " + started.error().describe()});
    return false;
  }
  if (observation != nullptr) observation->scrape(server);
  notify(Listening{server.address()});

  int signal = 0;
  sigwait(&ends, &signal);
  server.stop(std::chrono::milliseconds(0));
  return true;
}

}  // namespace hawser::bench
