#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http.h"
#include "tests/testing.h"

namespace hawser::testing_tools {

// An API server of Kubernetes with the EndpointSlices of the service `storage` in the namespace `shop`. Its functions
// may be called while it serves.
class PlayedKubernetes {
 public:
  // The answer to a watch with sendInitialEvents.
  enum class Lists : std::uint8_t {
    streamed,
    refused,  // The status 422.
    ignored,  // The slices, but no bookmark behind them.
    silent,   // None, while the setting stays.
    expired,  // The slices and the bookmark, and an expired version behind them.
  };
  struct Settings {
    Lists lists = Lists::streamed;
    int status = 0;                 // Not 0: every request gets it.
    bool without_reason = false;    // The body of `status` does not come.
    std::string token = {};         // Not empty: requests need it.
    std::size_t part_bytes = 4096;  // Events are sent in parts of this size.
    bool gone_by_event = false;     // Expired versions get an event and not the status 410.
  };

  explicit PlayedKubernetes(ServerOptions options = {}) {
    options.loop.log = no_log();
    server_ = std::make_unique<Server>(std::move(options));
    server_->enable(http().route("GET", "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
                                 [this](HttpRequest& request) { return answer(request); }));
    const Result<void> started = server_->start();
    EXPECT_TRUE(started) << error_of(started);
  }
  ~PlayedKubernetes() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    server_.reset();
  }
  std::string address() const { return server_->address(); }

  void set(Settings settings) {
    const std::lock_guard lock(mutex_);
    settings_ = std::move(settings);
  }
  void put(const std::string& slice, const std::vector<std::string>& addresses) {
    std::string endpoints;
    for (const std::string& one : addresses) {
      endpoints += (endpoints.empty() ? "" : ",") + (R"({"addresses":[")" + one + R"("]})");
    }
    const std::lock_guard lock(mutex_);
    const std::string type = slices_.contains(slice) ? "MODIFIED" : "ADDED";
    slices_[slice] = R"(,"addressType":"IPv4","endpoints":[)" + endpoints + R"(],"ports":[{"name":"grpc","port":80}])";
    add_event(type, slice);
  }
  void remove(const std::string& slice) {
    const std::lock_guard lock(mutex_);
    add_event("DELETED", slice);
    slices_.erase(slice);
  }
  void bookmark() {
    const std::lock_guard lock(mutex_);
    ++version_;
    log_.push_back({version_, bookmark_of("")});
  }
  // Sends bytes to all watches.
  void send(std::string bytes) {
    const std::lock_guard lock(mutex_);
    log_.push_back({++version_, std::move(bytes)});
  }
  // Changes up to now are not known any more.
  void compact() {
    const std::lock_guard lock(mutex_);
    compacted_ = ++version_;
  }
  void end_watches() {
    const std::lock_guard lock(mutex_);
    ++epoch_;
  }
  // The queries of all requests.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::size_t count(std::string_view part) const {
    std::size_t found = 0;
    for (const std::string& one : requests()) found += one.contains(part) ? 1 : 0;
    return found;
  }

 private:
  struct Event {
    std::uint64_t version = 0;
    std::string line;
  };

  std::string slice_text(const std::string& name) const {
    return R"({"kind":"EndpointSlice","metadata":{"name":")" + name + R"(","resourceVersion":")" +
           std::to_string(version_) + "\"}" + slices_.at(name) + "}";
  }
  static std::string event_text(const std::string& type, const std::string& object) {
    return R"({"type":")" + type + R"(","object":)" + object + "}\n";
  }
  static std::string expired_text() {
    return event_text("ERROR", R"({"kind":"Status","code":410,"message":"too old"})");
  }
  std::string bookmark_of(const std::string& annotations) const {
    return event_text("BOOKMARK", R"({"kind":"EndpointSlice","metadata":{"resourceVersion":")" +
                                      std::to_string(version_) + "\"" + annotations + "}}");
  }
  void add_event(const std::string& type, const std::string& slice) {
    ++version_;
    log_.push_back({version_, event_text(type, slice_text(slice))});
  }
  static HttpResponse refusal(int status, const std::string& message) {
    return {.status = status,
            .body = R"({"kind":"Status","code":)" + std::to_string(status) + R"(,"message":")" + message + "\"}"};
  }

  Task<HttpResponse> answer(HttpRequest& request) {
    while (is_silent(request)) co_await Loop::current()->sleep(1ms);
    co_return response_to(request);
  }
  bool is_silent(const HttpRequest& request) const {
    const std::lock_guard lock(mutex_);
    return !ending_ && settings_.lists == Lists::silent && query_value(request.query(), "sendInitialEvents");
  }
  HttpResponse response_to(HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    const std::string_view query = request.query();
    requests_.emplace_back(query);
    if (settings_.status != 0 && settings_.without_reason) {
      HttpResponse response = watch_of(log_.size(), {});
      response.status = settings_.status;
      return response;
    }
    if (settings_.status != 0) return refusal(settings_.status, "it does not work");
    if (!settings_.token.empty() && request.header("Authorization") != "Bearer " + settings_.token) {
      return refusal(401, "Unauthorized");
    }
    if (request.parameter("namespace") != "shop" ||
        query_value(query, "labelSelector") != "kubernetes.io/service-name=storage") {
      return refusal(404, "another service");
    }
    std::string items;
    if (!query_value(query, "watch")) {
      for (const auto& [name, text] : slices_) items += (items.empty() ? "" : ",") + slice_text(name);
      return {.body =
                  R"({"metadata":{"resourceVersion":")" + std::to_string(version_) + R"("},"items":[)" + items + "]}"};
    }
    if (query_value(query, "sendInitialEvents")) {
      if (settings_.lists == Lists::refused) return refusal(422, "sendInitialEvents is forbidden");
      for (const auto& [name, text] : slices_) items += event_text("ADDED", slice_text(name));
      if (settings_.lists != Lists::ignored) {
        items += bookmark_of(R"(,"annotations":{"k8s.io/initial-events-end":"true"})");
      }
      if (settings_.lists == Lists::expired) items += expired_text();
      return watch_of(log_.size(), std::move(items));
    }
    const std::uint64_t version = std::stoull(query_value(query, "resourceVersion").value_or("0"));
    if (version < compacted_) {
      if (!settings_.gone_by_event) return refusal(410, "too old resource version");
      return {.body = expired_text()};
    }
    std::size_t at = 0;
    while (at < log_.size() && log_[at].version <= version) ++at;
    return watch_of(at, {});
  }
  HttpResponse watch_of(std::size_t at, std::string first) {
    HttpResponse response;
    response.stream = [this, at, first = std::move(first), epoch = epoch_, part = settings_.part_bytes](
                          HttpBodyWriter& writer) { return send_watch(writer, at, first, epoch, part); };
    return response;
  }
  Task<void> send_watch(HttpBodyWriter& writer, std::size_t at, std::string bytes, int epoch, std::size_t part_bytes) {
    for (;;) {
      bool over = false;
      {
        const std::lock_guard lock(mutex_);
        for (; at < log_.size(); ++at) bytes += log_[at].line;
        over = ending_ || epoch != epoch_;
      }
      for (std::size_t sent = 0; sent < bytes.size(); sent += part_bytes) {
        const Result<void> written = co_await writer.write(bytes.substr(sent, part_bytes));
        if (!written) co_return;
      }
      if (over) co_return;
      bytes.clear();
      co_await Loop::current()->sleep(1ms);
    }
  }

  mutable std::mutex mutex_;  // Protects the following members, but not server_.
  Settings settings_;
  std::map<std::string, std::string> slices_;  // By name; the rest of the object.
  std::vector<Event> log_;
  std::uint64_t version_ = 1;
  std::uint64_t compacted_ = 0;
  int epoch_ = 0;  // Watches of earlier ones end.
  bool ending_ = false;
  std::vector<std::string> requests_;
  std::unique_ptr<Server> server_;
};

}  // namespace hawser::testing_tools
