// Interceptors: authentication by token, an access log, and a limit on the rate of calls.
#include <hawser/authorization.h>
#include <hawser/hawser.h>
#include <hawser/interceptor.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

using hawser::ErrorCode;
using hawser::IncomingCall;
using hawser::Next;
using hawser::Result;
using hawser::Task;

std::string greet(hawser::Context& context) { return "hello, " + context.identity().subject; }

// One line for each call, with its outcome and its time.
Task<Result<void>> access_log(IncomingCall& call, Next next) {
  const auto begin = std::chrono::steady_clock::now();
  Result<void> outcome = co_await next();
  const auto microseconds =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%s %s by %s: %s, %zu bytes in, %zu out, %lld us\n", std::string(call.protocol()).c_str(),
              std::string(call.method()).c_str(), call.identity().text().c_str(),
              std::string(outcome ? "ok" : to_string(outcome.error().code)).c_str(), call.request_bytes(),
              call.reply_bytes(), static_cast<long long>(microseconds));
  co_return outcome;
}

// Refuses calls beyond a number in a second. All loops of a server share it.
class RateLimit {
 public:
  explicit RateLimit(int calls_per_second_max) : calls_per_second_max_(calls_per_second_max) {}
  Task<Result<void>> operator()(IncomingCall& call, Next next) const {
    const auto second = std::chrono::duration_cast<std::chrono::seconds>(call.loop().now().time_since_epoch()).count();
    if (state_->second.exchange(second) != second) state_->calls.store(0);
    if (state_->calls.fetch_add(1) < calls_per_second_max_) return next();
    return refuse();
  }

 private:
  static Task<Result<void>> refuse() { co_return hawser::fail(ErrorCode::overloaded, "too many calls: wait a second"); }
  struct State {
    std::atomic<long long> second{0};
    std::atomic<int> calls{0};
  };
  int calls_per_second_max_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

Task<int> talk(std::string address) {
  hawser::Client client;
  if (auto connected = co_await client.connect(address); !connected) co_return 1;
  const Result<std::string> refused = co_await client.call<greet>();
  std::printf("without a token: %s\n", refused ? refused->c_str() : refused.error().text.c_str());
  const hawser::CallOptions with_token{.metadata = {{"authorization", "Bearer 7d4e01c9b2f845aa"}}};
  int greeted = 0;
  int limited = 0;
  for (int i = 0; i < 1000 && limited == 0; ++i) {
    const Result<std::string> reply = co_await client.call<greet>(with_token);
    greeted += reply == "hello, alice" ? 1 : 0;
    limited += !reply && reply.error().code == ErrorCode::overloaded ? 1 : 0;
  }
  std::printf("%d calls, then the limit\n", greeted);
  co_return !refused && refused.error().code == ErrorCode::unauthenticated && greeted != 0 && limited != 0 ? 0 : 1;
}

int main() {
  hawser::Identity alice;
  alice.subject = "alice";
  hawser::Server server;
  server.use(access_log);
  server.use(hawser::BearerTokens({.required = true}).add("7d4e01c9b2f845aa", alice));
  server.use(hawser::Authorization().allow("*", hawser::authenticated()));
  server.use(RateLimit(5));
  server.register_handler<greet>();
  if (auto started = server.start(); !started) {
    std::fprintf(stderr, "%s\n", started.error().describe().c_str());
    return 1;
  }
  return hawser::sync_wait(talk(server.address()));
}
