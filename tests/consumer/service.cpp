// A service from a .proto file, with the installed component hawser::protobuf.
#include <cstdio>

#include "greeter.hawser.h"

namespace {

class Greeter final : public consumer::Greeter {
 public:
  hawser::Task<hawser::Result<consumer::Greeting>> Greet(hawser::Context&, const consumer::Greeting& request) override {
    consumer::Greeting reply;
    reply.set_name("hello " + request.name());
    co_return reply;
  }
};

hawser::Task<bool> talk(std::string address) {
  hawser::Client client;
  auto connecting = client.connect(address);
  if (hawser::Result<void> connected = co_await std::move(connecting); !connected) co_return false;
  consumer::Greeter::Stub stub(client);
  consumer::Greeting request;
  request.set_name("installed");
  auto call = stub.Greet(request);
  const hawser::Result<consumer::Greeting> reply = co_await std::move(call);
  co_return reply && reply->name() == "hello installed";
}

}  // namespace

int main() {
  Greeter greeter;
  hawser::Server server;
  server.add_service(&greeter);
  return server.start() && hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
