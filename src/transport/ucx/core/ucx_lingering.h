#pragma once

#include <mutex>
#include <vector>

namespace hawser::transport {

class UcxCore;

// Abandoned workers that UCX does not let be destroyed yet. One for all UCX transports of a runtime: whoever uses UCX
// there, on whatever loop, makes their progress. Thread-safe.
class UcxLingering {
 public:
  // Destroys those that UCX has finished with. Returns at once if another thread does this.
  void progress() noexcept;

 private:
  friend class UcxCore;
  std::mutex mutex_;
  std::vector<UcxCore*> cores_;  // Each keeps its UcxContext, which keeps this.
};

}  // namespace hawser::transport
