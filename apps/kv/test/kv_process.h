#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kv/test/resp_peer.h"

namespace hawser::kv {

// A running hawser-kv, at a Unix socket.
class KvProcess {
 public:
  // `sync`: of a log in the folder; empty: there is none. `more`: further options of the command.
  KvProcess(const std::filesystem::path& folder, const std::string& sync, unsigned threads,
            const std::vector<std::string>& more = {})
      : address_("unix:" + (folder / "kv").string()) {
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hawser-kv";
    std::vector<std::string> words = {
        program.string(),       "serve", "--listen", address_, "--memory", "64M", "--index", "0", "--threads",
        std::to_string(threads)};
    if (!sync.empty()) {
      for (const char* const word : {"--log", "", "--fsync", "", "--log-rewrite", "8K"}) words.emplace_back(word);
      words[words.size() - 5] = (folder / "log").string();
      words[words.size() - 3] = sync;
    }
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&process_, program.c_str(), nullptr, nullptr, arguments.data(), environ) != 0) process_ = -1;
    for (int i = 0; i < 6000; ++i) {
      RespPeer peer(address_);
      if (peer.connected() && peer.call({"PING"}) == "+PONG\r\n") {
        ready = true;
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~KvProcess() { end(SIGKILL); }
  void end(int with) {
    if (process_ <= 0) return;
    kill(process_, with);
    waitpid(process_, &status, 0);
    process_ = -1;
  }
  const std::string& address() const { return address_; }
  bool ready = false;
  int status = 0;

 private:
  pid_t process_ = -1;
  std::string address_;
};

}  // namespace hawser::kv
