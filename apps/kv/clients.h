#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace hawser::kv {

// A Redis client as CLIENT LIST shows it.
struct ClientRecord {
  std::uint64_t id = 0;
  std::string address = {};
  std::string name = {};
  std::string library = {};
  std::string library_version = {};
  int protocol = 2;
  int tracking = 0;        // 1: CLIENT TRACKING is on.
  std::int64_t since = 0;  // Milliseconds since 1970.
};

// The Redis clients of all loops. Any thread.
class Clients {
 public:
  // `record` stays where it is until remove().
  void add(ClientRecord& record) {
    const std::lock_guard lock(mutex_);
    records_.emplace(record.id, &record);
  }
  void remove(const ClientRecord& record) {
    const std::lock_guard lock(mutex_);
    records_.erase(record.id);
  }
  // Records are changed by this alone.
  void set(std::string& field, std::string_view value) {
    const std::lock_guard lock(mutex_);
    field = value;
  }
  void set(int& field, int value) {
    const std::lock_guard lock(mutex_);
    field = value;
  }
  // Calls `visit(record)` in the order of their ids.
  template <class Visit>
  void each(Visit visit) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, record] : records_) visit(*record);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, ClientRecord*> records_;
};

}  // namespace hawser::kv
