#pragma once

#include <memory>
#include <string>

#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/server.h"

// The benchmark's calls over the protocol of bRPC.
namespace hawser::bench {

// A client of that protocol. Belongs to its loop.
class BaiduStdCaller {
 public:
  virtual ~BaiduStdCaller() = default;
  virtual Task<Result<void>> connect(std::string address) = 0;
  // Makes the calls. Valid as long as this object.
  virtual Client& client() noexcept = 0;
};

// Returns null if the library was built without the protocol.
std::unique_ptr<BaiduStdCaller> make_baidu_std_caller(Loop& loop, const ClientOptions& options);
// Does nothing if the library was built without the protocol.
void enable_baidu_std(Server& server);

}  // namespace hawser::bench
