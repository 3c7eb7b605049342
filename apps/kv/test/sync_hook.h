#pragma once

#include <functional>
#include <mutex>
#include <utility>

namespace hawser::kv {

inline std::mutex sync_mutex;  // Guards sync_hook.
inline std::function<int(int file)> sync_hook;

// While it exists, fsync() and fdatasync() of this program call `hook` and nothing else, one call at a time. It returns
// 0 or an error of errno. Of several, the last one counts. The functions are in log_power_test.cpp.
class SyncHook {
 public:
  explicit SyncHook(std::function<int(int file)> hook) {
    const std::lock_guard lock(sync_mutex);
    before_ = std::exchange(sync_hook, std::move(hook));
  }
  SyncHook(const SyncHook&) = delete;
  SyncHook& operator=(const SyncHook&) = delete;
  ~SyncHook() {
    const std::lock_guard lock(sync_mutex);
    sync_hook = std::move(before_);
  }

 private:
  std::function<int(int file)> before_;
};

}  // namespace hawser::kv
