#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/server.h"

// The benchmark's calls over the protocols of other systems.
namespace hawser::bench {

// A client of such a protocol. Belongs to its loop.
class ProtocolCaller {
 public:
  virtual ~ProtocolCaller() = default;
  virtual Task<Result<void>> connect(std::string address) = 0;
  // Makes the calls. Valid as long as this object.
  virtual Client& client() noexcept = 0;
};

// One connection over which calls with JSON are made one after the other. Belongs to its loop.
class HttpCaller {
 public:
  virtual ~HttpCaller() = default;
  virtual Task<Result<void>> connect(std::string address) = 0;
  // The text of a request whose message has `payload`, and of its reply.
  virtual std::string text_of(std::string_view payload) const = 0;
  virtual Task<Result<std::string>> call(std::string text) = 0;
};

// Return null if the library was built without the protocol.
std::unique_ptr<HttpCaller> make_http_caller(Loop& loop, const ClientOptions& options);
std::unique_ptr<ProtocolCaller> make_baidu_std_caller(Loop& loop, const ClientOptions& options);
std::unique_ptr<ProtocolCaller> make_grpc_caller(Loop& loop, const ClientOptions& options);
// Do nothing if the library was built without the protocol.
void enable_baidu_std(Server& server);
void enable_grpc(Server& server);
void enable_http(Server& server);

}  // namespace hawser::bench
