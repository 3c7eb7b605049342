#pragma once

#include <gtest/gtest.h>

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

// An agent of Consul with instances of the service `storage`. Its functions may be called while it serves.
class PlayedConsul {
 public:
  struct Settings {
    int status = 0;          // Not 0: every request gets it, with the reason "it does not work".
    bool silent = false;     // Questions that wait get no answer, while the setting stays.
    bool indexed = true;     // Answers have X-Consul-Index.
    bool led = true;         // The servers have a leader.
    bool hidden = false;     // Answers say that the token may not see all instances.
    std::string token = {};  // Not empty: requests need it.
    std::string body = {};   // Not empty: in place of the list.
  };

  explicit PlayedConsul(ServerOptions options = {}) {
    options.loop.log = no_log();
    server_ = std::make_unique<Server>(std::move(options));
    server_->enable(
        http().route("GET", "/v1/health/service/{service}", [this](HttpRequest& request) { return answer(request); }));
    const Result<void> started = server_->start();
    EXPECT_TRUE(started) << error_of(started);
  }
  ~PlayedConsul() {
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
    ++index_;
  }
  // `status` is that of its check.
  void put(const std::string& address, const std::string& status = "passing", const std::string& port = "80") {
    const std::lock_guard lock(mutex_);
    instances_[address] = R"({"Node":{"Node":"n","Address":")" + address +
                          R"(","Meta":null},"Service":{"ID":"a","Service":"storage","Address":"","Port":)" + port +
                          R"(},"Checks":[{"CheckID":"serfHealth","Status":"passing"},{"Status":")" + status + R"("}]})";
    ++index_;
  }
  void remove(const std::string& address) {
    const std::lock_guard lock(mutex_);
    instances_.erase(address);
    ++index_;
  }
  // The index of another state, such as that of servers that were restored.
  void set_index(std::uint64_t index) {
    const std::lock_guard lock(mutex_);
    index_ = index;
  }
  // Answers questions that wait, without a change.
  void end_waits() {
    const std::lock_guard lock(mutex_);
    ++epoch_;
  }
  // The queries of all requests.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  Task<HttpResponse> answer(HttpRequest& request) {
    const std::uint64_t known = std::stoull(query_value(request.query(), "index").value_or("0"));
    const int began = begin(request);
    while (waits(known, began)) co_await Loop::current()->sleep(std::chrono::milliseconds(1));
    co_return response_to(request);
  }
  int begin(const HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.emplace_back(request.query());
    return epoch_;
  }
  bool waits(std::uint64_t known, int began) const {
    const std::lock_guard lock(mutex_);
    if (ending_ || known == 0) return false;
    return settings_.silent || (known >= index_ && began == epoch_);
  }
  HttpResponse response_to(const HttpRequest& request) const {
    const std::lock_guard lock(mutex_);
    if (settings_.status != 0) return {.status = settings_.status, .body = "it does not work\n"};
    if (!settings_.token.empty() && request.header("X-Consul-Token") != settings_.token) {
      return {.status = 403, .body = "ACL not found"};
    }
    HttpResponse response{.body = settings_.body};
    if (response.body.empty()) {
      std::string list;
      for (const auto& [address, instance] : instances_) list += (list.empty() ? "" : ",") + instance;
      response.body = request.parameter("service") == "storage" ? "[" + list + "]" : "[]";
    }
    if (settings_.indexed) response.headers.emplace_back("X-Consul-Index", std::to_string(index_));
    response.headers.emplace_back("X-Consul-KnownLeader", settings_.led ? "true" : "false");
    if (settings_.hidden) response.headers.emplace_back("X-Consul-Results-Filtered-By-ACLs", "true");
    return response;
  }

  mutable std::mutex mutex_;  // Protects the following members, but not server_.
  Settings settings_;
  std::map<std::string, std::string> instances_;  // By address.
  std::uint64_t index_ = 10;
  int epoch_ = 0;  // Questions of earlier ones are answered.
  bool ending_ = false;
  std::vector<std::string> requests_;
  std::unique_ptr<Server> server_;
};

}  // namespace hawser::testing_tools
