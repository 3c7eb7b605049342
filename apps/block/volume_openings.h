#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::block {

// A program that opens a volume, and may be killed and started again.
struct OpeningClient {
  std::string name = {};     // The same for all of its processes, one after the other. Empty: it has none.
  std::string process = {};  // A random id of this process.
};

// The openings of volumes by clients that repeat requests after they have lost a connection. Such a client opens the
// volume again, which ends its earlier opening: a request of this one either has ended then, or is refused when it
// arrives. So no request of a lost connection is executed after those of the next one. A server that was restarted
// knows no opening of before. Thread-safe.
class VolumeOpenings {
  struct Opening;

 public:
  static constexpr std::size_t openings_max_usual = 65'536;
  // Earlier processes of a client that are refused.
  static constexpr std::size_t earlier_processes_max = 8;

  // A request in progress. end() of its opening waits for it.
  class Use {
   public:
    Use() noexcept = default;
    Use(Use&& other) noexcept;
    Use& operator=(Use&&) = delete;
    ~Use();

   private:
    friend class VolumeOpenings;
    Use(VolumeOpenings& openings, std::shared_ptr<Opening> opening) noexcept;

    VolumeOpenings* openings_ = nullptr;
    std::shared_ptr<Opening> opening_;  // Null: none.
  };

  explicit VolumeOpenings(std::size_t openings_max = openings_max_usual) : openings_max_(openings_max) {}
  VolumeOpenings(const VolumeOpenings&) = delete;
  VolumeOpenings& operator=(const VolumeOpenings&) = delete;

  // The id of a new opening, which is random. If there are too many, the opening ends that was used the least
  // recently and has no request in progress: its client opens the volume again. Fails with EBUSY if there is none.
  // Ends the openings of earlier processes of the client, and blocks until their requests have ended. Fails with
  // ESHUTDOWN if a later process of the client has begun an opening.
  Result<std::string> begin(const OpeningClient& client = {});
  // Blocks until the requests of the opening have ended. Later ones are refused. Several calls may wait.
  void end(std::string_view id);
  // None if there is no such opening.
  std::optional<Use> use(std::string_view id);

 private:
  using Ids = std::list<std::string>;
  struct Opening {
    unsigned requests = 0;  // In progress.
    bool ended = false;     // Stays in openings_ as long as it has requests, so that each end() waits for them.
    Ids::iterator place;    // In used_.
    OpeningClient client;
  };
  using Map = std::map<std::string, std::shared_ptr<Opening>, std::less<>>;
  // Has an opening at least.
  struct KnownClient {
    std::string process;              // The last one.
    std::deque<std::string> earlier;  // The processes before it.
    std::set<std::string> ids;        // The ids of its openings.
  };

  Ids::iterator find_idle();
  void evict(const std::string& fresh);
  Result<void> enter(const OpeningClient& client);
  void end_earlier(std::unique_lock<std::mutex>& lock, const OpeningClient& client);
  void end_locked(std::unique_lock<std::mutex>& lock, std::string_view id);
  void remove(Map::iterator found);

  const std::size_t openings_max_;
  std::mutex mutex_;
  std::condition_variable unused_;  // An opening has no request any more.
  Map openings_;
  Ids used_;  // The openings, the one that was used last at the end.
  std::map<std::string, KnownClient> clients_;
};

}  // namespace hawser::block
