#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "heap/external_block.h"
#include "transport/rdma/device/test/fake_device_testing.h"
#include "transport/rdma/memory/user_memory.h"
#include "transport/rdma/protocol/one_sided.h"

namespace hawser::transport::rdma {

// Memory of the application that stays registered with the device until nobody uses it any more.
struct UserBlock final : ExternalBlock {
  UserBlock(std::shared_ptr<UserMemory> table, std::size_t bytes)
      : ExternalBlock(&UserBlock::returned), table_(std::move(table)), memory(bytes) {
    EXPECT_TRUE(table_->add(memory, *this));
  }
  ~UserBlock() { table_->remove(memory.data()); }
  static void returned(ExternalBlock& block) noexcept { delete static_cast<UserBlock*>(&block); }

  const std::shared_ptr<UserMemory> table_;
  std::vector<std::byte> memory;
};

// Writes the peer's memory and reads it back, at random, and checks the bytes: operations take effect in order.
class OneSidedUser {
 public:
  static constexpr std::uint64_t domain = 77;

  // `peer_device` has the memory that is written.
  OneSidedUser(FakeDevice& peer_device, std::shared_ptr<UserMemory> user, Random& random)
      : user_(std::move(user)),
        random_(random),
        region_(*peer_device.register_memory(memory_, {.remote_read = true, .remote_write = true})) {}
  ~OneSidedUser() { EXPECT_EQ(end_missing(), 0U) << "an operation was not told of its end"; }

  void begin_one(OneSided& remote) {
    const std::size_t slot = random_.below(slots);
    auto access = std::make_unique<Access>(*this, slot);
    if (random_.chance(0.5)) {
      access->kind = RemoteOperation::Kind::write;
      access->seed = static_cast<unsigned char>(1 + random_.below(250));
      std::memset(access->local->memory.data(), *access->seed, slot_bytes);
    } else {
      access->seed = last_[slot];
    }
    // Operations of one slot are of one priority, so that they take effect in order.
    access->priority = slot % 2 == 0 ? TransferPriority::interactive : TransferPriority::bulk;
    access->domain = domain;
    access->divide(random_);
    access->address = reinterpret_cast<std::uintptr_t>(memory_.data() + slot * slot_bytes);
    access->key = region_->remote_key();
    open_.push_back(std::move(access));
    Access& begun = *open_.back();
    const bool writes = begun.kind == RemoteOperation::Kind::write;
    const std::optional<unsigned char> seed = begun.seed;
    if (remote.start(begun)) {
      if (writes) last_[slot] = seed;
    } else {
      open_.pop_back();  // Too many operations.
      ++refused;
    }
  }
  void abandon_one(OneSided& remote) {
    if (open_.empty()) return;
    const auto at = std::next(open_.begin(), static_cast<std::ptrdiff_t>(random_.below(open_.size())));
    const Access& access = **at;
    remote.abandon(**at);
    if (access.kind == RemoteOperation::Kind::write) {
      // A part of it may have been written.
      for (const auto& other : open_) {
        if (other->slot == access.slot && other->kind == RemoteOperation::Kind::read) other->seed.reset();
      }
      for (std::size_t slot = 0; slot < slots; ++slot) {
        if (slot == access.slot && last_[slot] == access.seed) last_[slot].reset();
      }
    }
    open_.erase(at);
  }
  // Operations of a connection that has ended must have been notified.
  std::size_t end_missing() const noexcept { return open_.size(); }

  std::uint64_t done = 0;
  std::uint64_t refused = 0;

 private:
  static constexpr std::size_t slots = 4;
  static constexpr std::size_t slot_bytes = 2500;

  struct Access final : RemoteOperation {
    Access(OneSidedUser& owner, std::size_t of)
        : user(owner), slot(of), local(new UserBlock(owner.user_, slot_bytes)) {}
    ~Access() { local->release(); }
    // Runs of random lengths. Each is at its own place in both memories, in random order.
    void divide(Random& random) {
      for (std::size_t at = 0; at < slot_bytes;) {
        const std::size_t bytes = std::min(slot_bytes - at, 1 + random.below(random.chance(0.5) ? 40 : 3000));
        pieces.push_back({local->memory.data() + at, at, bytes});
        at += bytes;
      }
      for (std::size_t i = pieces.size(); random.chance(0.5) && i > 1; --i) {
        std::swap(pieces[i - 1], pieces[random.below(i)]);
      }
      runs = pieces;
    }
    void on_posted() override {
      EXPECT_FALSE(posted);
      posted = true;
    }
    void on_done(const std::optional<Error>& error) override {
      if (!error) {
        EXPECT_TRUE(posted);
        ++user.done;
        if (kind == Kind::read && seed) {
          const std::vector<std::byte> expected(slot_bytes, static_cast<std::byte>(*seed));
          EXPECT_EQ(local->memory, expected) << "not what was written last";
        }
      }
      user.open_.remove_if([this](const auto& one) { return one.get() == this; });
    }
    OneSidedUser& user;
    const std::size_t slot;
    UserBlock* const local;
    std::vector<TransferBatch::Run> pieces;
    std::optional<unsigned char> seed;  // Unknown after a write that was abandoned.
    bool posted = false;
  };

  const std::shared_ptr<UserMemory> user_;
  Random& random_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(slots * slot_bytes);
  const std::unique_ptr<MemoryRegion> region_;
  std::array<std::optional<unsigned char>, slots> last_ = {0, 0, 0, 0};
  std::list<std::unique_ptr<Access>> open_;
};

}  // namespace hawser::transport::rdma
