#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include "block/service.h"
#include "block/volume.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/sync.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser::block::nbd {

// A client of NBD that connects, or asks for the names of volumes, waits for the server for so long. Shorter than
// SessionLimits::handshake_timeout.
inline constexpr Duration first_outage_max = std::chrono::seconds(25);

// VolumeDirectory::medium() of a server.
struct RemoteMedium {
  const std::string name;
  std::stop_source lost = {};  // Another one has been found.
};

// A volume that was opened at a server.
struct RemoteOpening {
  RemoteOpening(Client& client, OpenedVolume opened, std::shared_ptr<const RemoteMedium> on)
      : volume(client, std::move(opened.name)), status(std::move(opened.status)), medium(std::move(on)) {}

  Volume volume;
  const VolumeStatus status;
  const std::shared_ptr<const RemoteMedium> medium;
  bool interrupted = false;  // One of its requests may still be executed, until the volume has been opened again.
  Semaphore ending{1};       // RemoteServer::end_left().
};

// The connection to a block server, which the devices of its volumes share. Used on the loop.
class RemoteServer {
 public:
  // `options`: calls have no deadline, whatever they say. `outage_max`: a request that a lost connection has ended is
  // repeated for so long. 0: no request is repeated. `client_name`: the same for all processes that follow this one,
  // and for no other ones; empty: none follows. When a volume is opened, the requests end that earlier processes have
  // left at the server.
  RemoteServer(Loop& loop, const std::string& address, ClientOptions options, Duration outage_max,
               std::string client_name);

  Loop& loop() const noexcept { return loop_; }
  Duration outage_max() const noexcept { return outage_max_; }
  // Tries again for up to first_outage_max, unless the server has not been reached since the start.
  Task<Result<std::vector<std::string>>> list();
  // `name` may be that of an earlier opening: VolumeService::open(). If the server has another medium than before, the
  // earlier one is lost. Ends the openings of the volume that were left. Tries again until `end` if the server cannot
  // be reached.
  Task<Result<std::shared_ptr<RemoteOpening>>> open(std::string name, Time end, std::stop_token token);
  // Nobody repeats the requests of the opening, and some may still be executed. Devices begin no request of the volume
  // before end_left() has ended it.
  void leave(std::shared_ptr<RemoteOpening> opening) noexcept;
  bool has_left(const std::string& volume) const noexcept { return left_at(volume) != nullptr; }
  Task<Result<void>> end_left(std::string volume, Time end, std::stop_token token);
  // Ends requests in progress. Later ones fail.
  void close();

 private:
  // An opening beyond it is forgotten: the one that was left first.
  static constexpr std::size_t left_max = 4096;

  std::shared_ptr<RemoteOpening> left_at(const std::string& volume) const noexcept;
  bool is_left(const std::shared_ptr<RemoteOpening>& opening) const noexcept;
  void note(const Error* error, bool ends);
  template <class Make>
  std::invoke_result_t<Make&> until_there(Make make, Time end, std::stop_token token);
  Task<Result<void>> connect();
  Task<Result<std::shared_ptr<RemoteOpening>>> open_alone(std::string name, Time end, std::stop_token token);
  Task<Result<std::shared_ptr<RemoteOpening>>> open_once(const std::string& name);
  Task<Result<std::vector<std::string>>> list_once();

  const std::string address_;
  Loop& loop_;
  const Duration outage_max_;
  const std::string client_name_;
  const std::string process_;  // A random id.
  Client client_;
  bool closed_ = false;
  bool reached_ = false;                  // Since the start. list() does not wait before.
  std::shared_ptr<RemoteMedium> medium_;  // The last one that is known.
  std::list<std::shared_ptr<RemoteOpening>> left_;
  std::optional<Time> away_since_;  // The server. Messages are for the first that notices it, not for each client.
  bool given_up_ = false;           // A request has failed since then.
};

// The connection was lost, or the opening has ended: the request may be repeated in another opening.
bool is_interrupted(const Error& error) noexcept;

}  // namespace hawser::block::nbd
