#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace hawser::transport {

class UcxCore;

// Abandoned workers that UCX does not allow to be destroyed yet. All UCX transports of a runtime share one object;
// every loop that uses UCX calls progress() for these workers. Thread-safe.
class UcxLingering {
 public:
  // Calls UCX's progress and destroys the workers that UCX has finished with. Returns at once if another thread is
  // doing this.
  void progress() noexcept;
  // Number of workers that wait for UCX.
  std::size_t size() noexcept {
    const std::lock_guard lock(mutex_);
    return cores_.size();
  }

 private:
  friend class UcxCore;
  std::mutex mutex_;
  std::vector<UcxCore*> cores_;  // Each core keeps its UcxContext, which keeps this object.
};

}  // namespace hawser::transport
