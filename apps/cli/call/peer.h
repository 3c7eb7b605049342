#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/call/method.h"
#include "cli/call/protobuf_files.h"
#include "hawser/client.h"
#include "hawser/detail/client_link.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "tls/client_options.h"

namespace hawser::cli {

// How a command reaches a server.
struct PeerOptions {
  std::string address;
  std::string protocol = "native";
  Duration timeout = std::chrono::seconds(10);
  std::vector<std::string> transports = {};  // Beside TCP, of the native protocol: shm, rdma, ucx.
  bool others = true;                        // The transports that are enabled by default may be used too.
  std::string proto_file = {};
  std::vector<std::string> proto_folders = {};
  std::shared_ptr<transport::ClientSecurity> security = {};  // Null: no TLS.
  Metadata metadata = {};                                    // Sent with each call.

  CallOptions call_options() const {
    CallOptions made;
    made.timeout = timeout;
    made.metadata = metadata;
    return made;
  }
};

// A server whose methods are found at run time. Used on one loop.
class CallPeer {
 public:
  virtual ~CallPeer() = default;
  Task<Result<void>> connect() { return client_.connect(options_.address); }
  // Stays valid as long as the peer.
  detail::ClientLink& link() noexcept { return detail::link_of(client_); }
  // The transport of the connection, such as "tcp".
  std::string transport() const { return std::string(client_.transport()); }
  virtual Task<Result<Duration>> ping() = 0;
  // Asks for the health of a service by the own method of the protocol; unknown_method if there is none.
  virtual Task<Result<bool>> is_serving(std::string service) {
    static_cast<void>(service);
    co_return fail(ErrorCode::unknown_method, "the protocol has no method for it");
  }
  // The names of all methods, sorted. Names have no control characters.
  virtual Task<Result<std::vector<std::string>>> list() = 0;
  virtual Task<Result<Method>> find(std::string name) = 0;
  // A description for people of a method, or of another thing that the protocol can name.
  virtual Task<Result<std::string>> describe(std::string name) = 0;

 protected:
  CallPeer(const PeerOptions& options, ClientOptions client) : options_(options), client_(std::move(client)) {}

  const PeerOptions options_;
  Client client_;
};

// Call it on a loop. Fails if this build does not have the protocol or if the options contradict each other.
Result<std::unique_ptr<CallPeer>> make_peer(const PeerOptions& options);

// The protocols. `make_grpc_peer` and `make_baidu_std_peer` return null in a build without the protocol.
std::unique_ptr<CallPeer> make_native_peer(const PeerOptions& options);
std::unique_ptr<CallPeer> make_grpc_peer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files);
std::unique_ptr<CallPeer> make_baidu_std_peer(const PeerOptions& options, std::unique_ptr<ProtobufFiles> files);

}  // namespace hawser::cli
