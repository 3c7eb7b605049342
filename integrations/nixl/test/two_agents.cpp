// Agents of one process, without NIXL: transfers, notifications, and what happens to them when an agent goes away.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "agent.h"

namespace {

using hawser::ErrorCode;
using hawser::nixl::Agent;
using hawser::nixl::AgentInformation;
using hawser::nixl::Inbox;
using hawser::nixl::Transfer;

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "two_agents: failed: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(1);
}

std::unique_ptr<Agent> start(std::string name, hawser::TransportOptions transports) {
  auto agent = Agent::start({.name = std::move(name),
                             .listen = "127.0.0.1:0",
                             .transports = std::move(transports),
                             .connect_timeout = std::chrono::seconds(100),
                             .log = hawser::no_log()});
  require(agent.has_value(), "an agent starts");
  return std::move(*agent);
}

void wait_for(const Transfer& transfer) {
  while (transfer.active()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::vector<Inbox::Notification> wait_for(Inbox& inbox, std::size_t count) {
  std::vector<Inbox::Notification> all;
  while (all.size() < count) {
    for (auto& notification : inbox.take()) all.push_back(std::move(notification));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return all;
}

void check_information() {
  const AgentInformation information{7, "host", {"127.0.0.1:1", "10.0.0.1:1"}};
  const std::string text = hawser::nixl::encode(information);
  require(hawser::nixl::decode_information(text) == information, "information is decoded as it was encoded");
  for (std::size_t i = 0; i < text.size(); ++i) {
    require(!hawser::nixl::decode_information(text.substr(0, i)), "information that is cut off is refused");
  }
  require(!hawser::nixl::decode_information(text + "x"), "information that is too long is refused");
  hawser::RemoteRegion region;
  region.bytes = 1ULL << 40;
  region.readable = true;
  region.owner = ~0ULL;
  region.capability = 3;
  region.places[2] = {.domain = 4, .address = 5, .key = 6};
  const std::string handle = hawser::nixl::encode(region);
  region.places[0] = std::exchange(region.places[2], {});  // Unused places are left out.
  require(hawser::nixl::decode_region(handle) == region, "a handle is decoded as it was encoded");
  require(!hawser::nixl::decode_region(text), "a handle of another kind is refused");
}

// A transfer of every second block, of parts of two registrations each.
struct Fixture {
  static constexpr std::size_t block = 4096;
  static constexpr std::size_t blocks = 512;

  explicit Fixture(const hawser::TransportOptions& transports)
      : left(start("left", transports)), right(start("right", transports)) {
    left->add_peer("right", right->information());
    left->add_peer("left", left->information());
    for (std::size_t i = 0; i < 2; ++i) {
      auto registered = right->add_memory(remote[i]);
      require(registered.has_value(), "memory is registered");
      registrations.push_back(std::move(*registered));
    }
  }
  std::vector<Transfer::Part> parts() {
    std::vector<Transfer::Part> made(2);
    for (std::size_t i = 0; i < 2; ++i) {
      made[i].region = registrations[i]->handle();
      for (std::size_t b = 0; b < blocks; b += 2) {
        made[i].batch.add(hawser::MutableBytes(local[i]).subspan(b * block, block), b * block);
      }
    }
    return made;
  }
  std::shared_ptr<Transfer> make(Transfer::Direction direction) {
    return std::make_shared<Transfer>(left->find_peer("right"), direction, parts());
  }
  void post(const std::shared_ptr<Transfer>& transfer, std::optional<std::string> notification = {}) const {
    transfer->peer()->post(transfer, std::move(notification));
  }
  bool written(std::byte value) const {
    for (const auto& memory : remote) {
      for (std::size_t i = 0; i < memory.size(); ++i) {
        if (memory[i] != ((i / block) % 2 == 0 ? value : std::byte{})) return false;
      }
    }
    return true;
  }

  std::array<std::vector<std::byte>, 2> local = {std::vector<std::byte>(block * blocks),
                                                 std::vector<std::byte>(block* blocks)};
  std::array<std::vector<std::byte>, 2> remote = local;
  std::unique_ptr<Agent> left;
  std::unique_ptr<Agent> right;
  std::vector<std::unique_ptr<hawser::nixl::Registration>> registrations;
};

void check_transfers(const hawser::TransportOptions& transports) {
  Fixture fixture(transports);
  const auto write = fixture.make(Transfer::Direction::write);
  for (int round = 1; round <= 3; ++round) {
    for (auto& memory : fixture.local) std::memset(memory.data(), round, memory.size());
    fixture.post(write, "written " + std::to_string(round));
    const auto notified = wait_for(fixture.right->inbox(), 1);
    require(fixture.written(std::byte(round)), "a notification finds the data written");
    require(notified.front() == Inbox::Notification("left", "written " + std::to_string(round)), "the notification");
    wait_for(*write);
    require(write->outcome() == ErrorCode::ok, "a write that is posted again");
  }
  for (auto& memory : fixture.local) std::memset(memory.data(), 0, memory.size());
  const auto read = fixture.make(Transfer::Direction::read);
  fixture.post(read, "");
  require(wait_for(fixture.right->inbox(), 1).front().second.empty(), "an empty notification is one");
  wait_for(*read);
  require(read->outcome() == ErrorCode::ok, "a read");
  require(fixture.local == fixture.remote, "the data of a read");

  for (int i = 0; i < 5000; ++i) {
    require(fixture.left->find_peer("right")->notify(std::to_string(i)).has_value(), "a notification is accepted");
  }
  const auto all = wait_for(fixture.right->inbox(), 5000);
  for (std::size_t i = 0; i < all.size(); ++i)
    require(all[i].second == std::to_string(i), "the order of notifications");

  fixture.registrations.front().reset();
  fixture.post(write);
  wait_for(*write);
  require(write->outcome() == ErrorCode::stale_handle, "memory that is not registered any more is refused");
}

// Whatever these meet, a transfer has an outcome and its end is reported once.
void check_ends(const hawser::TransportOptions& transports) {
  for (int round = 0; round < 9; ++round) {
    Fixture fixture(transports);
    const auto write = fixture.make(Transfer::Direction::write);
    fixture.post(write);
    if (round % 2 == 0) {
      require(write->peer()->connect().has_value(), "connecting while a transfer connects");
    }
    if (round % 3 == 0) {
      write->peer()->cancel(write);
      require(write->outcome() == ErrorCode::ok || write->outcome() == ErrorCode::cancelled, "a cancelled transfer");
      fixture.post(write);
      wait_for(*write);
      require(write->outcome() == ErrorCode::ok, "a transfer after one that was cancelled");
    } else if (round % 3 == 1) {
      require(fixture.left->remove_peer("right"), "an agent is disconnected");
      require(write->outcome() == ErrorCode::ok || write->outcome() == ErrorCode::unavailable,
              "a disconnected transfer");
      fixture.post(write);
      wait_for(*write);
      require(write->outcome() == ErrorCode::unavailable, "a transfer with a disconnected agent");
      require(!write->peer()->connect(), "connecting to a disconnected agent");
      require(!write->peer()->notify("x"), "a notification of a disconnected agent");
    } else {
      fixture.registrations.clear();
      fixture.right.reset();
      wait_for(*write);
      fixture.post(write);
      wait_for(*write);
      require(write->outcome() != ErrorCode::ok, "a transfer with an agent that has ended");
    }
  }
}

}  // namespace

int main() {
  check_information();
  hawser::TransportOptions tcp;
  tcp.enabled.clear();
  check_transfers(tcp);
  check_ends(tcp);
  check_transfers({});
  check_ends({});
  std::puts("two_agents: passed");
}
