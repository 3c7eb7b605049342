#pragma once

#include <memory>

#include "hawser/server.h"

namespace hawser::cli {

// The services of `hawser demo serve`, which are defined in .proto files: example.EchoService and demo.ShopService. In
// a build without protobuf there is example.EchoService only.
class DemoServices {
 public:
  DemoServices();
  DemoServices(const DemoServices&) = delete;
  DemoServices& operator=(const DemoServices&) = delete;
  ~DemoServices();

  // Registers the services with `server`, which this object must outlive.
  void add_to(Server& server);
  // Whether this build has all services.
  static bool available() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hawser::cli
