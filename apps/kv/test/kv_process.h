#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
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
  pid_t process() const noexcept { return process_; }
  bool ready = false;
  int status = 0;

 private:
  pid_t process_ = -1;
  std::string address_;
};

// `hawser-kv serve` at a port of the loopback, with any options.
class ServeProcess {
 public:
  explicit ServeProcess(const std::vector<std::string>& options) {
    int ends[2];
    if (::pipe(ends) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    std::vector<std::string> words = {program(), "serve", "--listen", "127.0.0.1:0", "--memory", "64M"};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    if (posix_spawn(&process_, program().c_str(), &actions, nullptr, arguments.data(), environ) != 0) process_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_ = ends[0];
    constexpr std::string_view before = "serving at ";
    // The end of the output is that of the process.
    while (more()) {
      const std::size_t at = text.find(before);
      const std::size_t end = at == std::string::npos ? at : text.find(' ', at + before.size());
      if (end == std::string::npos) continue;
      address = text.substr(at + before.size(), end - at - before.size());
      return;
    }
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;
  ~ServeProcess() {
    end();
    if (output_ >= 0) close(output_);
  }
  // Waits until its output has this. False if it ends before.
  bool says(std::string_view line) {
    while (!text.contains(line)) {
      if (!more()) return false;
    }
    return true;
  }
  // Ends it. `text` has all of its output then.
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGTERM);
    kill(process_, SIGCONT);
    while (more()) {
    }
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  pid_t process() const { return process_; }
  // Its resident memory, now and the most that it has had.
  std::size_t resident_mib() const { return status_field("VmRSS:") >> 10; }
  std::size_t resident_mib_most() const { return status_field("VmHWM:") >> 10; }
  // Its memory that RLIMIT_DATA bounds.
  std::size_t data_bytes() const { return status_field("VmData:") << 10; }
  std::string port() const { return address.substr(address.rfind(':') + 1); }
  static std::string program() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hawser-kv").string();
  }
  std::string address;  // Empty if it did not start.
  std::string text;     // Its output and its errors.

 private:
  std::size_t status_field(std::string_view field) const {
    std::ifstream status("/proc/" + std::to_string(process_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with(field)) return std::stoul(line.substr(field.size()));
    }
    ADD_FAILURE() << "no " << field;
    return 0;
  }
  bool more() {
    char bytes[4096];
    const ssize_t got = read(output_, bytes, sizeof bytes);
    if (got <= 0) return false;
    text.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  pid_t process_ = -1;
  int output_ = -1;
};

}  // namespace hawser::kv
