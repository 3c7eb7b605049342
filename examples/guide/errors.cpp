// Chapter 7 of the guide: errors are values, and their codes say what may be done.
#include <hawser/hawser.h>

#include <chrono>
#include <cstdio>
#include <string>

using namespace std::chrono_literals;

// [handler]
enum ShopError : int { sold_out = 1 };

hawser::Result<int> reserve(int item) {
  if (item == 7) return std::unexpected(hawser::Error::application(sold_out, "item 7 is sold out"));
  return item * 10;
}
// [/handler]

// [decide]
// Returns true if the same call may be sent again.
bool may_retry(const hawser::Error& error, bool idempotent) {
  if (error.not_executed()) {
    // The server has not executed it: nothing was sent, or the server refused it.
    return error.code != hawser::ErrorCode::unknown_method && error.code != hawser::ErrorCode::signature_mismatch;
  }
  // outcome_unknown and deadline_exceeded: the handler may have run. Only an idempotent call is repeated.
  return idempotent &&
         (error.code == hawser::ErrorCode::outcome_unknown || error.code == hawser::ErrorCode::deadline_exceeded);
}
// [/decide]

// [retry]
hawser::Task<hawser::Result<int>> reserve_with_retries(hawser::Client& client, std::string address, int item) {
  hawser::Duration pause = 10ms;
  for (int attempt = 1;; ++attempt) {
    auto connected = co_await client.connect(address);  // Returns at once while the client is connected.
    hawser::Result<int> reserved = std::unexpected(hawser::Error{});
    if (connected) {
      reserved = co_await client.call<reserve>(item);
    } else {
      reserved = std::unexpected(connected.error());
    }
    if (reserved || attempt == 3 || !may_retry(reserved.error(), false)) co_return reserved;
    co_await hawser::Loop::current()->sleep(pause);
    pause *= 2;
  }
}
// [/retry]

hawser::Task<int> talk(std::string address) {
  hawser::Client client;
  auto first = co_await reserve_with_retries(client, address, 4);
  auto second = co_await reserve_with_retries(client, address, 7);
  // [inspect]
  if (!second && second.error().code == hawser::ErrorCode::application) {
    std::printf("the handler refused (%d): %s\n", second.error().application_code, second.error().text.c_str());
  }
  // [/inspect]
  co_return first == 40 && !second && second.error().application_code == sold_out ? 0 : 1;
}

int main() {
  hawser::Server server;
  server.register_handler<reserve>();
  if (!server.start()) return 1;
  return hawser::sync_wait(talk(server.address()));
}
