#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/server.h"

// The benchmark's calls over the protocols of other systems.
namespace hawser::bench {

// One connection over which calls with JSON are made one after the other. Belongs to its loop.
class HttpCaller {
 public:
  virtual ~HttpCaller() = default;
  virtual Task<Result<void>> connect(std::string address) = 0;
  // The text of a request whose message has `payload`, and of its reply.
  virtual std::string text_of(std::string_view payload) const = 0;
  virtual Task<Result<std::string>> call(std::string text) = 0;
};

// Return null, or no options, if the library was built without the protocol.
std::unique_ptr<HttpCaller> make_http_caller(Loop& loop, const ClientOptions& options);
std::optional<ClientOptions> baidu_std_options(const ClientOptions& options);
std::optional<ClientOptions> grpc_options(const ClientOptions& options);
// Do nothing if the library was built without the protocol.
void enable_baidu_std(Server& server);
void enable_grpc(Server& server);
void enable_http(Server& server);

}  // namespace hawser::bench
