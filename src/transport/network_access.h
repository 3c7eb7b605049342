#pragma once

#include <memory>
#include <utility>

#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/runtime.h"
#include "hawser/server.h"
#include "transport/network.h"

namespace hawser::transport {

// Makes runtimes whose clients and servers meet over another network than the machine's: for tests, and for the public
// test kit (hawser/testing.h).
struct NetworkAccess {
  static std::shared_ptr<Runtime> runtime(std::shared_ptr<Network> network, RuntimeOptions options = {}) {
    return std::shared_ptr<Runtime>(new Runtime(std::move(options), std::move(network)));
  }
};

// Returns the options of a client, server or pool with a runtime over `network`.
template <class Options>
Options over(std::shared_ptr<Network> network, Options options) {
  if constexpr (requires { options.client.runtime; }) {
    options.client.runtime = NetworkAccess::runtime(std::move(network));
  } else {
    options.runtime = NetworkAccess::runtime(std::move(network));
  }
  return options;
}

}  // namespace hawser::transport
