#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cluster/consul/consul_name.h"
#include "hawser/consul.h"
#include "hawser/error.h"
#include "hawser/http_client.h"
#include "hawser/loop.h"
#include "hawser/task.h"

namespace hawser::cluster {

// The answer to one question for the instances of a service.
struct ConsulAnswer {
  std::uint64_t index = 0;  // The number of the state that the answer shows. 0: none that can be used.
  bool led = true;          // The servers of Consul have a leader, so that the answer is current.
  bool hidden = false;      // The token may not see all instances.
  std::string body;
};

// Adds what the environment says to the options that are empty, and checks all. Fails with `invalid_argument`.
Result<ConsulOptions> complete_consul_options(ConsulOptions options);

// The questions to an agent for the instances of one service. Loop's thread only.
class ConsulAgent {
 public:
  ConsulAgent(Loop& loop, const ConsulName& name, const ConsulOptions& options);

  // Waits until the state is newer than `index`, or for ConsulOptions::wait_time. 0: does not wait. Fails if the answer
  // is not a list (status 200).
  Task<Result<ConsulAnswer>> ask(std::uint64_t index);
  // The URL of the agent, for texts.
  const std::string& shown() const noexcept { return server_; }

 private:
  Loop& loop_;
  const ConsulOptions options_;
  std::string server_;   // "http://host:port" or "https://host:port".
  std::string address_;  // "unix:/path". Empty: that of server_.
  const std::string path_;
  HttpClient client_;
};

}  // namespace hawser::cluster
