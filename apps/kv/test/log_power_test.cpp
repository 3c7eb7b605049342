// The append-only log when the machine loses power: what was not synced is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "kv/test/resp_peer.h"
#include "kv/test/sync_hook.h"

namespace hawser::kv {
namespace {

namespace fs = std::filesystem;

int hooked_sync(int file, long call) {
  {
    const std::lock_guard lock(sync_mutex);
    if (sync_hook) {
      const int error = sync_hook(file);
      if (error != 0) errno = error;
      return error == 0 ? 0 : -1;
    }
  }
  return static_cast<int>(syscall(call, file));
}

}  // namespace
}  // namespace hawser::kv

// They take the place of the functions of the C library in this program.
extern "C" int fsync(int file) { return hawser::kv::hooked_sync(file, SYS_fsync); }
extern "C" int fdatasync(int file) { return hawser::kv::hooked_sync(file, SYS_fdatasync); }

namespace hawser::kv {
namespace {

LogOptions options_in(const fs::path& folder, std::size_t rewrite) {
  return {.folder = folder, .shards = {.sync = LogSync::always, .rewriting = {.bytes_min = rewrite}}};
}

// Keeps the contents of files and the names in folders as of their last sync: what a disk has when the machine ends.
class Disk {
 public:
  explicit Disk(const fs::path& root) : root_(root) {
    const Descriptor folder(::open(root.c_str(), O_RDONLY | O_DIRECTORY));
    synced(folder.get());
  }
  void synced(int file) {
    const ino_t number = hold("/proc/self/fd/" + std::to_string(file), 0);
    if (!is_folder(number)) {
      std::ifstream reader("/proc/self/fd/" + std::to_string(file), std::ios::binary);
      contents_[number] = std::string(std::istreambuf_iterator<char>(reader), {});
      return;
    }
    std::map<std::string, ino_t>& names = names_[number];
    names.clear();
    const fs::path folder = fs::read_symlink("/proc/self/fd/" + std::to_string(file));
    for (const auto& entry : fs::directory_iterator(folder)) {
      names[entry.path().filename()] = hold(entry.path(), O_NOFOLLOW);
    }
  }
  // Writes what is there afterwards. `names_ahead`: all names have reached the disk, also those that were not synced.
  void recover(const fs::path& to, bool names_ahead) {
    struct stat status{};
    ASSERT_EQ(stat(root_.c_str(), &status), 0);
    names_ahead ? copy_names(root_, to) : copy(status.st_ino, to);
  }

 private:
  // An inode that is open is not used again.
  ino_t hold(const std::string& path, int flags) {
    Descriptor file(::open(path.c_str(), O_PATH | O_CLOEXEC | flags));
    struct stat status{};
    EXPECT_EQ(fstat(file.get(), &status), 0) << path;
    if (!held_.contains(status.st_ino)) held_[status.st_ino] = std::move(file);
    return status.st_ino;
  }
  bool is_folder(ino_t number) {
    struct stat status{};
    EXPECT_EQ(fstat(held_[number].get(), &status), 0);
    return S_ISDIR(status.st_mode);
  }
  void copy(ino_t number, const fs::path& to) {
    if (!is_folder(number)) {
      std::ofstream(to, std::ios::binary) << contents_[number];
      return;
    }
    fs::create_directories(to);
    for (const auto& [name, inner] : names_[number]) copy(inner, to / name);
  }
  void copy_names(const fs::path& from, const fs::path& to) {
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(from)) {
      struct stat status{};
      if (lstat(entry.path().c_str(), &status) != 0) continue;
      if (S_ISDIR(status.st_mode)) {
        copy_names(entry.path(), to / entry.path().filename());
      } else {
        // Without a sync, a file may be empty.
        std::ofstream(to / entry.path().filename(), std::ios::binary)
            << (held_.contains(status.st_ino) ? contents_[status.st_ino] : "");
      }
    }
  }

  const fs::path root_;
  std::map<ino_t, Descriptor> held_;
  std::map<ino_t, std::string> contents_;
  std::map<ino_t, std::map<std::string, ino_t>> names_;
};

using Model = std::map<std::string, std::string>;

Model model_of(Store& store) {
  Model found;
  for (unsigned i = 0; i < store.shards(); ++i) {
    std::uint64_t cursor = 0;
    do {
      cursor = store.site(i).shard().scan(cursor, store.clock(), [&](Entry& entry) {
        found.emplace(std::string(entry.key()), std::string(entry.value()));
      });
    } while (cursor != 0);
  }
  return found;
}

// One client sends commands, and the machine ends before and after each sync. What is read then is the state after all
// commands that were answered, or after the next one too.
TEST(Log, ALossOfPowerLosesNothingThatWasAcknowledged) {
  struct Crash {
    fs::path folder;
    std::size_t acknowledged;
  };
  const TemporaryFolder copies;
  const TemporaryFolder root;
  Disk disk(root.path());
  const fs::path log = fs::path("new") / "folder" / "log";
  std::vector<Crash> crashes;
  std::vector<Model> states(1);
  std::atomic<std::size_t> acknowledged = 0;
  const SyncHook recording([&](int file) {
    const std::size_t least = acknowledged;
    const auto crash = [&] {
      for (const bool ahead : {false, true}) {
        crashes.push_back({copies.path() / std::to_string(crashes.size()), least});
        disk.recover(crashes.back().folder, ahead);
      }
    };
    crash();
    disk.synced(file);
    crash();
    return 0;
  });
  std::mt19937 random(7);
  std::uint64_t rewrites = 0;
  for (const unsigned shards : {1U, 2U, 1U}) {
    // Several shards write at once, and a list of names is not atomic: their files are not renamed.
    const LogOptions options = options_in(root.path() / log, shards == 1 ? std::size_t{4096} : std::size_t{64} << 20);
    KvServer server({.shards = shards}, {}, &options);
    RespPeer peer(server.address());
    for (int i = 0; i < 60; ++i) {
      Model next = states.back();
      const std::string key = "key" + std::to_string(random() % 10);
      const std::string value(1 + random() % 300, static_cast<char>('a' + random() % 26));
      std::vector<std::string> command = {"SET", key, value};
      switch (const unsigned kind = random() % 10; shards == 1 || kind > 1 ? kind : 9) {
        case 0:
          command = {"FLUSHALL"};
          next.clear();
          break;
        case 1:
          command = {"MSET", "m1", value, "m2", key};
          next["m1"] = value;
          next["m2"] = key;
          break;
        case 2:
        case 3:
          command = {"DEL", key};
          next.erase(key);
          break;
        case 4:
          command = {"APPEND", key, "more"};
          next[key] += "more";
          break;
        case 5:
          command = {"INCR", "number"};
          next["number"] = std::to_string((next.contains("number") ? std::stoi(next["number"]) : 0) + 1);
          break;
        default: next[key] = value; break;
      }
      states.push_back(std::move(next));
      ASSERT_NE(peer.call(command).front(), '-');
      ++acknowledged;
    }
    if (shards == 1) {
      // A number of another thread only grows.
      for (int i = 0; server.store.site(0).log()->rewrites() == 0; ++i) {
        ASSERT_LT(i, 10'000);
        states.push_back(states.back());
        states.back()["key0"] = std::string(300, 'z');
        ASSERT_EQ(peer.call({"SET", "key0", std::string(300, 'z')}), "+OK\r\n");
        ++acknowledged;
      }
      rewrites += server.store.site(0).log()->rewrites();
    }
  }
  EXPECT_GE(rewrites, 2U);
  const SyncHook none([](int) { return 0; });
  for (const Crash& crash : crashes) {
    Store store({.memory_bytes = std::size_t{4} << 20});
    const Result<LogReport> opened = store.open_log(options_in(crash.folder / log, std::size_t{64} << 20));
    ASSERT_TRUE(opened) << crash.folder << opened.error().text;
    const Model found = model_of(store);
    const bool next = crash.acknowledged + 1 < states.size() && found == states[crash.acknowledged + 1];
    EXPECT_TRUE(next || found == states[crash.acknowledged])
        << crash.folder << " after " << crash.acknowledged << " commands has " << found.size() << " keys";
  }
}

// The number after "log_waiting_for_disk:".
std::uint64_t waiting_for_disk(RespPeer& peer) {
  const std::string text = peer.call({"INFO", "persistence"});
  const std::size_t at = text.find("log_waiting_for_disk:");
  return at == std::string::npos ? UINT64_MAX : std::stoull(text.substr(text.find(':', at) + 1));
}

// Returns true as soon as `reached` does for that number, and false after a long time.
template <class Reached>
bool waits_until(RespPeer& peer, Reached reached) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) {
    if (reached(waiting_for_disk(peer))) return true;
  }
  return false;
}

// Clients that come, write and go while the disk does not answer leave nothing behind.
TEST(Log, NothingWaitsForClientsThatHaveGone) {
  for (const unsigned shards : {1U, 2U}) {
    const TemporaryFolder folder;
    const LogOptions options = options_in(folder.path(), std::size_t{64} << 20);
    KvServer server({.shards = shards}, {}, &options);
    RespPeer watcher(server.address());
    EXPECT_EQ(waiting_for_disk(watcher), 0U);
    std::atomic<bool> stalled = true;
    const SyncHook waiting([&](int) {
      stalled.wait(true);
      return 0;
    });
    for (int round = 0; round < 3; ++round) {
      RespPeer peer(server.address());
      for (int i = 0; i < 200; ++i) peer.send(request({"SET", "key" + std::to_string(i), "value"}));
      for (int i = 0; i < 200; ++i) peer.send(request({"DEL", "none" + std::to_string(i)}));
      // One batch at a time travels to another shard.
      EXPECT_TRUE(waits_until(watcher, [&](std::uint64_t now) { return now >= (shards == 1 ? 400U : 100U); }))
          << shards;
      // It ends by a reset. The server would wait for a client that only ends its direction.
      const linger hard{.l_onoff = 1, .l_linger = 0};
      setsockopt(peer.descriptor(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    EXPECT_TRUE(waits_until(watcher, [&](std::uint64_t now) { return now == 0; })) << shards;
    stalled = false;
    stalled.notify_all();
    EXPECT_EQ(watcher.call({"SET", "key", "value"}), "+OK\r\n");
  }
}

Task<void> set_until(Client& link, std::string key, std::stop_token token) {
  const CallOptions options{.timeout = forever, .token = token};
  const std::string value = "value";
  const Result<std::uint64_t> set = co_await link.call<&Service::set>(options, key, value, std::int64_t{0});
  EXPECT_FALSE(set);
}

// The same for clients of Hawser.
TEST(Log, NothingWaitsForCallersThatHaveGone) {
  for (const unsigned shards : {1U, 2U}) {
    const TemporaryFolder folder;
    const LogOptions options = options_in(folder.path(), std::size_t{64} << 20);
    KvServer server({.shards = shards}, {}, &options);
    std::atomic<bool> stalled = true;
    const SyncHook waiting([&](int) {
      stalled.wait(true);
      return 0;
    });
    std::stop_source stop;
    std::thread callers([address = server.address(), token = stop.get_token()] {
      sync_wait([](std::string to, std::stop_token stopping) -> Task<void> {
        Client link;
        const Result<void> connected = co_await link.connect(to);
        EXPECT_TRUE(connected);
        Scope scope;
        for (int i = 0; i < 20; ++i) scope.spawn(set_until(link, "key" + std::to_string(i), stopping));
        co_await scope.join();
      }(address, token));
    });
    RespPeer watcher(server.address());
    EXPECT_TRUE(waits_until(watcher, [](std::uint64_t now) { return now == 20; })) << shards;
    stop.request_stop();
    callers.join();
    EXPECT_TRUE(waits_until(watcher, [](std::uint64_t now) { return now == 0; })) << shards;
    stalled = false;
    stalled.notify_all();
    EXPECT_EQ(watcher.call({"EXISTS", "key19"}), ":1\r\n");
  }
}

// A disk that does not answer must not make the server keep what clients send.
TEST(Log, AStalledDiskStopsReadingFromClients) {
  const TemporaryFolder folder;
  const LogOptions options = options_in(folder.path(), std::size_t{64} << 20);
  KvServer server({}, {}, &options);
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"SET", "key", "value"}), "+OK\r\n");
  // The sync waits until this test releases it.
  std::atomic<bool> stalled = true;
  const SyncHook waiting([&](int) {
    stalled.wait(true);
    return 0;
  });
  constexpr std::size_t value_bytes = 16 * 1024;
  const std::string one = request({"SET", "key", std::string(value_bytes, 'v')});
  constexpr std::size_t commands = 8192;  // 128 MiB.
  // The commands that wait, and what sockets and one block of the connection hold.
  constexpr std::size_t bound = (std::size_t{1024} * value_bytes) + (std::size_t{32} << 20);
  fcntl(peer.descriptor(), F_SETFL, O_NONBLOCK);
  std::size_t sent = 0;
  std::size_t at = 0;
  std::size_t whole = 0;
  while (whole < commands && sent < bound) {
    const ssize_t some = send(peer.descriptor(), one.data() + at, one.size() - at, MSG_NOSIGNAL);
    if (some > 0) {
      sent += static_cast<std::size_t>(some);
      at += static_cast<std::size_t>(some);
      if (at == one.size()) at = 0, ++whole;
      continue;
    }
    if (errno != EAGAIN) break;
    // No more room for a while, or the server has stopped. A server that goes on reading makes room at once.
    pollfd room{.fd = peer.descriptor(), .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, 1000) == 0) break;
  }
  EXPECT_LT(sent, bound);
  stalled = false;
  stalled.notify_all();
  fcntl(peer.descriptor(), F_SETFL, 0);
  if (at != 0) {
    peer.send(std::string_view(one).substr(at));
    ++whole;
  }
  for (std::size_t i = 0; i < whole; ++i) ASSERT_EQ(peer.receive(), "+OK\r\n") << i;
}

// Its client would not know otherwise whether a write was executed. What the client sends later is not executed.
TEST(Log, AStopAnswersWhatWaitsForTheDisk) {
  for (const unsigned shards : {1U}) {
    const TemporaryFolder folder;
    const LogOptions options = options_in(folder.path(), std::size_t{64} << 20);
    KvServer server({.shards = shards}, {}, &options);
    RespPeer peer(server.address());
    RespPeer other(server.address());
    std::atomic<bool> stalled = true;
    const SyncHook waiting([&](int) {
      stalled.wait(true);
      return 0;
    });
    std::string writes;
    std::string replies;
    for (int key = 0; key < 10; ++key) {
      writes += request({"INCR", std::to_string(key)});
      replies += ":1\r\n";
    }
    peer.send(writes);
    for (int key = 0; key < 10; ++key) {
      while (other.call({"GET", std::to_string(key)}) != "$1\r\n1\r\n") std::this_thread::yield();
    }
    std::thread stop([&] { server.server().stop(std::chrono::minutes(10)); });
    // The connection without a reply that waits ends first. With one shard, both connections have the same loop.
    EXPECT_EQ(other.rest(), "");
    if (shards == 1) peer.send(request({"INCR", "0"}));
    // Longer than a client that does not answer is waited for.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    stalled = false;
    stalled.notify_all();
    EXPECT_EQ(peer.rest(), replies);
    stop.join();
  }
}

}  // namespace
}  // namespace hawser::kv
