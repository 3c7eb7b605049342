// A key-value store whose clients watch keys. A watch is a stream that lasts until its client or the server ends it.
// Each call carries a token, which an interceptor of the server checks.
#include <hawser/any_stop.h>
#include <hawser/authorization.h>
#include <hawser/channel.h>
#include <hawser/hawser.h>
#include <hawser/interceptor.h>

#include <cstdio>
#include <list>
#include <map>
#include <string>

namespace {

// [store]
struct Change {
  std::string key;
  std::string value;
};

// The server has one thread, so all handlers run on one loop, and the store needs no lock.
class Store {
 public:
  void put(const std::string& key, const std::string& value) {
    values_[key] = value;
    for (Watch* const watch : watches_) {
      // A watch that is 64 changes behind ends with an error. Waiting for its client would stop all writers.
      if (key.starts_with(watch->prefix) && !watch->changes.try_send({key, value})) watch->changes.close();
    }
  }

  // Sends the values that exist, and then each change, until the client or the server ends the call.
  hawser::Task<hawser::Result<void>> watch(hawser::Context& context, std::string prefix, hawser::Writer<Change> out) {
    Watch mine{.prefix = prefix};
    const auto place = watches_.insert(watches_.end(), &mine);
    const Leave leave{watches_, place};
    const std::map<std::string, std::string> values = values_;
    for (const auto& [key, value] : values) {
      if (!key.starts_with(prefix)) continue;
      const Change now{key, value};
      if (auto written = co_await out.write(now); !written) co_return written;
    }
    // The caller has cancelled or has gone, or the server is stopping.
    const hawser::AnyStop end(context.token(), context.stopping());
    for (;;) {
      hawser::Result<Change> change = co_await mine.changes.receive(end.token());
      if (!change && change.error().code == hawser::ErrorCode::cancelled) co_return hawser::Result<void>{};
      if (!change) co_return std::unexpected(hawser::Error::application(1, "too slow: watch again"));
      if (auto written = co_await out.write(*change); !written) co_return written;
    }
  }

 private:
  struct Watch {
    std::string prefix;
    hawser::Channel<Change> changes{64};
  };
  // Ends the watch when its coroutine ends, also if it is destroyed while it waits.
  struct Leave {
    std::list<Watch*>& watches;
    std::list<Watch*>::iterator place;
    ~Leave() { watches.erase(place); }
  };

  std::map<std::string, std::string> values_;
  std::list<Watch*> watches_;
};
// [/store]

// [client-token]
// Sends the token with each call of the client.
void use_token(hawser::Client& client, std::string token) {
  client.use([token](hawser::OutgoingCall& call, hawser::Next next) -> hawser::Task<hawser::Result<void>> {
    call.set_metadata("authorization", "Bearer " + token);
    co_return co_await next();
  });
}
// [/client-token]

hawser::Task<bool> talk(std::string address, std::string token) {
  hawser::Client stranger;
  hawser::Client client;
  if (!co_await stranger.connect(address) || !co_await client.connect(address)) co_return false;
  const std::string key = "colour/door";
  std::string value = "red";
  hawser::Result<void> refused = co_await stranger.call<&Store::put>(key, value);
  if (refused || refused.error().code != hawser::ErrorCode::unauthenticated) co_return false;
  std::printf("without a token: %s\n", refused.error().describe().c_str());

  use_token(client, token);
  if (!co_await client.call<&Store::put>(key, value)) co_return false;
  auto watching = co_await client.open<&Store::watch>("colour/");
  if (!watching) co_return false;
  auto changes = watching->reader();
  for (const char* const next : {"red", "green", "blue"}) {
    hawser::Result<std::optional<Change>> change = co_await changes.next();
    if (!change || !*change || (*change)->value != value) co_return false;
    std::printf("%s is %s\n", (*change)->key.c_str(), (*change)->value.c_str());
    value = next == std::string("red") ? "green" : "blue";
    if (!co_await client.call<&Store::put>(key, value)) co_return false;
  }
  co_return true;  // The stream ends with `watching`.
}

}  // namespace

int main() {
  const std::string token = "a secret of 16 bytes or more";
  Store store;
  hawser::Server server;
  // [server-token]
  hawser::Identity alice;
  alice.subject = "alice";  // Handlers see it as Context::identity().
  server.use(hawser::BearerTokens({.required = true}).add(token, alice));
  // [/server-token]
  server.register_handler<&Store::put, &Store::watch>(&store);
  if (auto started = server.start(); !started) {
    std::puts(started.error().describe().c_str());
    return 1;
  }
  return hawser::sync_wait(talk(server.address(), token)) ? 0 : 1;
}
