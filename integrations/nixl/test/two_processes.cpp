// Two processes with an agent of NIXL each, over the back end HAWSER. `two_processes tcp` or `two_processes shm`.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nixl.h"

namespace {

constexpr std::size_t block = 4096;
constexpr std::size_t blocks = 15'000;
constexpr std::size_t buffers = 3;  // Registrations of each side. The blocks are spread over them.
constexpr std::size_t buffer_bytes = 2 * block * blocks / buffers;

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "two_processes: failed: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(1);
}

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

void send(int descriptor, const std::string& text) {
  const std::uint64_t size = text.size();
  require(::write(descriptor, &size, sizeof size) == sizeof size, "writing to the other process");
  require(::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
          "writing to the other process");
}

void receive(int descriptor, void* into, std::size_t bytes) {
  for (auto* at = static_cast<char*>(into); bytes > 0;) {
    const ssize_t got = ::read(descriptor, at, bytes);
    require(got > 0, "the other process has ended");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

std::string receive(int descriptor) {
  std::uint64_t size = 0;
  receive(descriptor, &size, sizeof size);
  std::string text(size, '\0');
  receive(descriptor, text.data(), text.size());
  return text;
}

// An agent with its registered buffers.
struct Side {
  Side(const std::string& name, const std::string& transports)
      : agent(name, nixlAgentConfig()), memory(buffers, std::vector<char>(buffer_bytes)), registered(DRAM_SEG) {
    nixlBackendH* backend = nullptr;
    require(agent.createBackend("HAWSER", {{"transports", transports}}, backend) == NIXL_SUCCESS,
            "the back end starts");
    for (std::vector<char>& buffer : memory) {
      registered.addDesc(nixlBlobDesc(reinterpret_cast<std::uintptr_t>(buffer.data()), buffer.size(), 0, ""));
    }
    require(agent.registerMem(registered) == NIXL_SUCCESS, "memory is registered");
  }
  ~Side() { agent.deregisterMem(registered); }

  nixl_xfer_dlist_t every_block(const std::vector<std::uintptr_t>& bases, std::size_t first) const {
    nixl_xfer_dlist_t list(DRAM_SEG);
    for (std::size_t i = 0; i < blocks; ++i) {
      list.addDesc(nixlBasicDesc(bases[i % buffers] + (2 * (i / buffers) + first) * block, block, 0));
    }
    return list;
  }
  std::vector<std::uintptr_t> bases() {
    std::vector<std::uintptr_t> all;
    for (std::vector<char>& buffer : memory) all.push_back(reinterpret_cast<std::uintptr_t>(buffer.data()));
    return all;
  }
  void fill(char even, char odd) {
    for (std::vector<char>& buffer : memory) {
      for (std::size_t i = 0; i < buffer.size(); i += block) {
        std::memset(buffer.data() + i, (i / block) % 2 == 0 ? even : odd, block);
      }
    }
  }
  bool holds(char even, char odd) const {
    for (const std::vector<char>& buffer : memory) {
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        if (buffer[i] != ((i / block) % 2 == 0 ? even : odd)) return false;
      }
    }
    return true;
  }
  std::string next_notification(const std::string& from) {
    while (true) {
      std::vector<std::string>& waiting = notifications[from];
      if (!waiting.empty()) {
        std::string message = waiting.front();
        waiting.erase(waiting.begin());
        return message;
      }
      require(agent.getNotifs(notifications) >= 0, "getNotifs()");
      pause();
    }
  }

  nixlAgent agent;
  std::vector<std::vector<char>> memory;
  nixl_reg_dlist_t registered;
  nixl_notifs_t notifications;
};

nixl_status_t wait_for(nixlAgent& agent, nixlXferReqH* request) {
  nixl_status_t status = NIXL_IN_PROG;
  while ((status = agent.getXferStatus(request)) == NIXL_IN_PROG) pause();
  return status;
}

// The owner of the memory answers each notification with what it finds in it.
[[noreturn]] void run_target(int from, int to, const std::string& transports) {
  Side side("target", transports);
  nixl_blob_t metadata;
  require(side.agent.getLocalMD(metadata) == NIXL_SUCCESS, "metadata");
  send(to, metadata);
  for (const std::uintptr_t base : side.bases()) send(to, std::to_string(base));
  std::string initiator;
  require(side.agent.loadRemoteMD(receive(from), initiator) == NIXL_SUCCESS, "loading metadata");
  while (true) {
    const std::string message = side.next_notification(initiator);
    if (message == "fill") {
      side.fill('x', 'y');
      require(side.agent.genNotif(initiator, "filled") == NIXL_SUCCESS, "genNotif()");
    } else {
      require(side.agent.genNotif(initiator, side.holds(message[0], message[1]) ? "right" : "wrong") == NIXL_SUCCESS,
              "genNotif()");
    }
  }
}

void run_initiator(int from, int to, const std::string& transports, pid_t target) {
  Side side("initiator", transports);
  std::string name;
  const nixl_blob_t target_metadata = receive(from);
  require(side.agent.loadRemoteMD(target_metadata, name) == NIXL_SUCCESS && name == "target", "loading metadata");
  std::vector<std::uintptr_t> remote;
  for (std::size_t i = 0; i < buffers; ++i) remote.push_back(std::stoull(receive(from)));
  nixl_blob_t metadata;
  require(side.agent.getLocalMD(metadata) == NIXL_SUCCESS, "metadata");
  send(to, metadata);

  // A prepared transfer is posted again. Its notification finds the data written.
  nixlDlistH* local_list = nullptr;
  nixlDlistH* remote_list = nullptr;
  require(side.agent.prepXferDlist(NIXL_INIT_AGENT, side.every_block(side.bases(), 0), local_list) == NIXL_SUCCESS &&
              side.agent.prepXferDlist("target", side.every_block(remote, 0), remote_list) == NIXL_SUCCESS,
          "lists of descriptors are prepared");
  std::vector<int> indices(blocks);
  for (std::size_t i = 0; i < blocks; ++i) indices[i] = static_cast<int>(i);
  nixlXferReqH* write = nullptr;
  const auto prepared = std::chrono::steady_clock::now();
  require(side.agent.makeXferReq(NIXL_WRITE, local_list, indices, remote_list, indices, write) == NIXL_SUCCESS,
          "a transfer is made of prepared lists");
  std::printf("%s: %zu blocks prepared in %.2f ms\n", transports.c_str(), blocks, milliseconds_since(prepared));
  for (const char value : {'a', 'b', 'c', 'd'}) {
    side.fill(value, '-');
    nixl_opt_args_t with_notification;
    with_notification.notif = std::string{value, '\0'};
    const auto begin = std::chrono::steady_clock::now();
    require(side.agent.postXferReq(write, &with_notification) >= 0, "a transfer is posted");
    const double posted = milliseconds_since(begin);
    require(wait_for(side.agent, write) == NIXL_SUCCESS, "a write");
    std::printf("%s: posted in %.2f ms, complete after %.2f ms\n", transports.c_str(), posted,
                milliseconds_since(begin));
    require(side.next_notification("target") == "right", "a notification finds the data written");
  }

  // A read of other blocks, as a single call.
  require(side.agent.genNotif("target", "fill") == NIXL_SUCCESS, "genNotif()");
  require(side.next_notification("target") == "filled", "the other agent answers");
  nixlXferReqH* read = nullptr;
  require(side.agent.createXferReq(NIXL_READ, side.every_block(side.bases(), 1), side.every_block(remote, 1), "target",
                                   read) == NIXL_SUCCESS,
          "a read is made");
  require(side.agent.postXferReq(read) >= 0 && wait_for(side.agent, read) == NIXL_SUCCESS, "a read");
  require(side.holds('d', 'y'), "the data of a read");

  // Within the agent: even blocks to odd ones.
  nixlXferReqH* local = nullptr;
  require(side.agent.createXferReq(NIXL_WRITE, side.every_block(side.bases(), 0), side.every_block(side.bases(), 1),
                                   "initiator", local) == NIXL_SUCCESS,
          "a local transfer is made");
  nixl_opt_args_t to_itself;
  to_itself.notif = "local";
  require(side.agent.postXferReq(local, &to_itself) >= 0 && wait_for(side.agent, local) == NIXL_SUCCESS,
          "a local transfer");
  require(side.holds('d', 'd'), "the data of a local transfer");
  require(side.next_notification("initiator") == "local", "a notification to itself");

  // A transfer that is released while it is in flight does not read memory afterwards, and harms no later one.
  for (int round = 0; round < 20; ++round) {
    nixlXferReqH* released = nullptr;
    require(side.agent.createXferReq(NIXL_WRITE, side.every_block(side.bases(), 0), side.every_block(remote, 0),
                                     "target", released) == NIXL_SUCCESS,
            "a transfer is made");
    require(side.agent.postXferReq(released) >= 0, "a transfer is posted");
    require(side.agent.releaseXferReq(released) == NIXL_SUCCESS, "a transfer in flight is released");
  }
  side.fill('e', '-');
  require(side.agent.postXferReq(write) >= 0 && wait_for(side.agent, write) == NIXL_SUCCESS, "a write after these");

  // Disconnecting with transfers in flight. The agent is loaded again afterwards.
  require(side.agent.postXferReq(write) >= 0 && side.agent.postXferReq(read) >= 0, "transfers are posted");
  require(side.agent.invalidateRemoteMD("target") == NIXL_SUCCESS, "the other agent is disconnected");
  std::printf("%s: disconnected in flight: %d, %d\n", transports.c_str(), wait_for(side.agent, write),
              wait_for(side.agent, read));
  require(side.agent.releaseXferReq(write) == NIXL_SUCCESS && side.agent.releaseXferReq(read) == NIXL_SUCCESS,
          "transfers are released");
  require(side.agent.releasedDlistH(remote_list) == NIXL_SUCCESS, "a list is released");
  require(side.agent.loadRemoteMD(target_metadata, name) == NIXL_SUCCESS, "loading metadata again");
  nixlXferReqH* again = nullptr;
  require(side.agent.createXferReq(NIXL_WRITE, side.every_block(side.bases(), 0), side.every_block(remote, 0), "target",
                                   again) == NIXL_SUCCESS,
          "a transfer is made");
  require(side.agent.postXferReq(again) >= 0 && wait_for(side.agent, again) == NIXL_SUCCESS,
          "a transfer after a new connection");

  // The other process is killed with a transfer in flight. Posting it until it fails needs no time limit.
  require(side.agent.postXferReq(again) >= 0, "a transfer is posted");
  require(::kill(target, SIGKILL) == 0, "the other process is killed");
  nixl_status_t status = NIXL_SUCCESS;
  while ((status = wait_for(side.agent, again)) == NIXL_SUCCESS) side.agent.postXferReq(again);
  require(status == NIXL_ERR_REMOTE_DISCONNECT, "a transfer with a process that has ended");
  side.agent.releaseXferReq(again);
  side.agent.releaseXferReq(local);
  side.agent.releasedDlistH(local_list);
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2, "usage: two_processes tcp|shm");
  const std::string transports = arguments[1];
  int to_target[2];
  int to_initiator[2];
  require(::pipe(to_target) == 0 && ::pipe(to_initiator) == 0, "pipes");
  const pid_t target = ::fork();
  require(target >= 0, "fork");
  if (target == 0) {
    ::close(to_target[1]);
    run_target(to_target[0], to_initiator[1], transports);
  }
  run_initiator(to_initiator[0], to_target[1], transports, target);
  ::waitpid(target, nullptr, 0);
  std::printf("%s: passed\n", transports.c_str());
}
