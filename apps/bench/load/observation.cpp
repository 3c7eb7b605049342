#include "bench/load/observation.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/try.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"
#include "hawser/pages.h"
#include "hawser/recorder.h"
#include "hawser/tracing.h"

namespace hawser::bench {
namespace {

constexpr std::chrono::seconds scrape_interval(1);

Task<Result<std::string>> read_metrics(std::string url) {
  HttpClient client(*Loop::current());
  HttpClientRequest request;
  request.url = std::move(url);
  CO_TRY(HttpClientResponse&& response, co_await client.send(std::move(request)));
  co_return std::move(response.body);
}

class AllOfIt final : public Observation {
 public:
  explicit AllOfIt(Server& server) {
    const Tracer tracer;
    const Recorder recorder;
    server.use(tracer.server_spans());
    server.use(recorder.calls());
    enable_pages(server, {.tracer = tracer, .recorder = recorder}, http());
  }
  void scrape(const Server& server) override {
    scraper_ = std::jthread([this, url = "http://" + server.address() + "/metrics"](const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, stop, scrape_interval, [] { return false; }) && !stop.stop_requested()) {
        static_cast<void>(sync_wait(read_metrics(url)));
      }
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread scraper_;
};

}  // namespace

std::unique_ptr<Observation> observe(Server& server) { return std::make_unique<AllOfIt>(server); }

}  // namespace hawser::bench
