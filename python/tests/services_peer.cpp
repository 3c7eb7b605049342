// The service of harbour.proto in C++, for Hawser's own protocol and gRPC: prints its address, and serves until its
// input ends.
#include <cstdint>
#include <iostream>
#include <string>

#include "harbour.hawser.h"
#include "hawser/grpc.h"
#include "hawser/hawser.h"

namespace {

class Office final : public harbour::Office {
 public:
  hawser::Task<hawser::Result<harbour::Ship>> Arrive(hawser::Context& context, const harbour::Ship& request) override {
    if (request.name().empty()) co_return std::unexpected(hawser::grpc_error(5, "a ship without a name"));
    for (const auto& [key, value] : context.metadata().copy()) context.add_metadata(key, value);
    harbour::Ship reply = request;
    reply.set_berth(request.berth() + 1);
    co_return reply;
  }
  hawser::Task<hawser::Result<harbour::Count>> CountShips(hawser::Context&,
                                                          hawser::Reader<harbour::Ship> requests) override {
    harbour::Count count;
    for (;;) {
      const auto ship = co_await requests.next();
      if (!ship) co_return std::unexpected(ship.error());
      if (!*ship) co_return count;
      count.set_ships(count.ships() + 1);
    }
  }
  hawser::Task<hawser::Result<void>> List(hawser::Context&, const harbour::Count& request,
                                          hawser::Writer<harbour::Ship> replies) override {
    for (std::int64_t i = 0; i < request.ships(); ++i) {
      harbour::Ship ship;
      ship.set_berth(static_cast<std::int32_t>(i));
      if (const auto written = co_await replies.write(ship); !written) co_return written;
    }
    co_return hawser::Result<void>{};
  }
  hawser::Task<hawser::Result<void>> Exchange(hawser::Context&, hawser::Reader<harbour::Ship> requests,
                                              hawser::Writer<harbour::Ship> replies) override {
    for (;;) {
      const auto ship = co_await requests.next();
      if (!ship) co_return std::unexpected(ship.error());
      if (!*ship) co_return hawser::Result<void>{};
      if (const auto written = co_await replies.write(**ship); !written) co_return written;
    }
  }
  hawser::Task<hawser::Result<harbour::Ship_Hold>> import(hawser::Context&, const google::protobuf::Empty&) override {
    harbour::Ship_Hold hold;
    hold.set_cargo("rope");
    co_return hold;
  }
};

}  // namespace

int main() {
  Office office;
  hawser::Server server;
  server.add_service(&office);
  server.enable(hawser::grpc());
  if (const hawser::Result<void> started = server.start(); !started) {
    std::cerr << started.error().describe() << "\n";
    return 1;
  }
  std::cout << server.address() << std::endl;
  std::string line;
  std::getline(std::cin, line);
  return 0;
}
