#pragma once

#include <memory>
#include <string>

#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/server.h"
#include "hawser/task.h"

namespace hawser::cli {

// Enable the protocol if this build has it.
void enable_grpc(Server& server);
void enable_baidu_std(Server& server);

// A client of one protocol. Used on the loop on which it was made.
class DemoCaller {
 public:
  virtual ~DemoCaller() = default;
  virtual Task<Result<void>> connect(std::string address) = 0;
  // Makes the calls. Valid as long as this object.
  virtual Client& client() noexcept = 0;
};
// Return null if this build does not have the protocol.
std::unique_ptr<DemoCaller> make_grpc_caller(Duration timeout);
std::unique_ptr<DemoCaller> make_baidu_std_caller(Duration timeout);

// Makes one call of each kind over each protocol and prints a table. Returns the exit status.
int show_calls(const std::string& address, Duration timeout);

}  // namespace hawser::cli
