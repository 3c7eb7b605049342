#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/naming.h"
#include "hawser/task.h"
#include "hawser/time.h"

// Names of services in etcd, and the registration of servers there. Component hawser::etcd. docs/clusters.md describes
// both.
//
//   options.naming.push_back(hawser::etcd_naming());
//   auto storage = hawser::ClusterClient::create("etcd://10.0.0.1:2379,10.0.0.2:2379/services/storage", options);
//
// The name is etcd://<member>,<member>.../<service>. The endpoints of the service are the keys "<service>/...", whose
// values have the format of etcd's own resolver for grpc-go: {"Op":0,"Addr":"host:port","Metadata":null}.
namespace hawser {

class Server;
namespace transport {
class ClientSecurity;
}

struct EtcdOptions {
  // With a user, each connection begins with a login by the password.
  std::string user = {};
  std::string password = {};
  // Protects the connections: a TlsClient (hawser/tls.h). Null: plain text.
  std::shared_ptr<transport::ClientSecurity> security = {};
  Duration connect_timeout = std::chrono::seconds(2);  // Limit for one member.
  Duration call_timeout = std::chrono::seconds(5);     // Limit of one request, such as that for the whole list.
  // etcd is asked whether the list is current when its watch was silent for this time. If it is silent for this time
  // again, the next member is used. So a silent member is left after at most twice this time. Connecting to the next
  // one and reading the list are added to the age of the list.
  Duration confirm_interval = std::chrono::seconds(5);
  // Pause after each member has failed once. It doubles up to retry_max, and differs by chance between clients. These
  // three times are from 1 ms to 1 h.
  Duration retry_interval = std::chrono::milliseconds(500);
  Duration retry_max = std::chrono::seconds(8);
  // Limit of one answer. A list with more bytes is refused.
  std::size_t message_bytes_max = std::size_t{16} << 20;
};

// The scheme "etcd".
NamingScheme etcd_naming(EtcdOptions options = {});

struct AnnouncementOptions {
  EtcdOptions etcd = {};
  // Time after which etcd removes the endpoint of a server that has vanished. 1 s or more, in whole seconds. etcd
  // raises a value that is too small for it.
  std::chrono::seconds ttl = std::chrono::seconds(10);
};

struct AnnouncementState {
  bool registered = false;          // The endpoint is registered, as far as this side knows.
  std::int64_t lease = 0;           // The lease of the registration.
  std::chrono::seconds ttl = {};    // As etcd has granted it.
  std::uint64_t registrations = 0;  // 1 at first; one more for each lease that was lost.
  std::optional<Error> error = {};  // Why the registration cannot be renewed now.
};

// Keeps one endpoint registered: by a lease that is kept alive, and by a new one if it is lost. Belongs to a loop and
// its thread, and must not outlive the loop. After its destruction, the endpoint stays until the lease has expired.
class EtcdAnnouncement {
 public:
  // Begins. Fails with `invalid_argument` if the name, the endpoint or an option is malformed. etcd need not be
  // reachable.
  static Result<std::unique_ptr<EtcdAnnouncement>> begin(Loop& loop, std::string_view name, Endpoint endpoint,
                                                         AnnouncementOptions options = {});
  EtcdAnnouncement(const EtcdAnnouncement&) = delete;
  EtcdAnnouncement& operator=(const EtcdAnnouncement&) = delete;
  ~EtcdAnnouncement();

  const AnnouncementState& state() const noexcept;
  // Ends the registration and removes the endpoint at once. Fails if etcd did not confirm it within call_timeout: the
  // endpoint stays until the lease has expired. Called once.
  Task<Result<void>> leave();

 private:
  class Keeper;
  explicit EtcdAnnouncement(std::unique_ptr<Keeper> keeper) noexcept;
  std::unique_ptr<Keeper> keeper_;
};

// Announces a server while it serves: from its start, or from now on if it serves already, until it begins to stop. The
// endpoint's address is the one by which clients reach the server. Failures are logged, and etcd is tried again.
// Errors: those of EtcdAnnouncement::begin() and Server::spawn(). Any thread.
Result<void> announce(Server& server, std::string_view name, Endpoint endpoint, AnnouncementOptions options = {});

}  // namespace hawser
