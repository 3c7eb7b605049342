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
  if (hawser::Result<void> connected = co_await client.connect(address); !connected) co_return false;
  consumer::Greeter::Stub stub(client);
  consumer::Greeting request;
  request.set_name("installed");
  const hawser::Result<consumer::Greeting> reply = co_await stub.Greet(request);
  co_return reply && reply->name() == "hello installed";
}

}  // namespace

int main() {
  Greeter greeter;
  hawser::Server server;
  server.add_service(&greeter);
  return server.start() && hawser::sync_wait(talk(server.address())) ? 0 : 1;
}
