#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/detail/receive_account.h"
#include "kv/commands.h"
#include "kv/store.h"

namespace hawser::kv {

// Memory of replies that travel to the loop of their connection, in the budget of that loop. One thread at a time. The
// budget outlives each raise(), and `total` the charge.
class TravelCharge {
 public:
  // `total`: see ReceiveAccount::abandoned(). Null: nothing is charged or refused.
  explicit TravelCharge(std::atomic<std::size_t>* total) noexcept : total_(total) {}
  TravelCharge(const TravelCharge&) = delete;
  TravelCharge& operator=(const TravelCharge&) = delete;
  ~TravelCharge() { release(); }

  // Charges `bytes` in all, and some more. False, without an effect, if more than half of the budget is used without
  // what it adds.
  bool raise(const hawser::detail::ReceiveBudget& budget, std::size_t bytes) noexcept;
  // For memory that is held already.
  void raise_always(std::size_t bytes) noexcept;
  void release() noexcept;

 private:
  std::atomic<std::size_t>* const total_;
  std::size_t bytes_ = 0;
};

// Commands of one connection that another shard executes, and their replies. It travels to that shard's loop and back,
// several times if its replies are long.
struct ForwardedBatch {
  explicit ForwardedBatch(std::atomic<std::size_t>* total) noexcept : charge(total) {}

  struct Item {
    const Command* command;  // Null: it needs no execution and has no reply.
    std::uint64_t slot;      // The reply belongs to this one of the connection.
    std::uint32_t part;      // And there to this part.
    std::uint32_t arguments;
    std::uint64_t hash;
    bool resp3;
    std::uint64_t tracker;      // The client that caches what it reads; 0: it does not.
    std::size_t reply_end = 0;  // The reply ends here in `replies`.
  };
  std::vector<Item> items;
  std::string bytes;                 // The arguments of all items.
  std::vector<std::uint32_t> sizes;  // Their lengths.
  // Items before `first` are done. Those before `end` have been executed, and their replies are here.
  std::size_t first = 0;
  std::size_t end = 0;
  bool wrote = false;  // One of these changed the store, or may have.
  // The arguments of the item `end` begin there, in `bytes` and in `sizes`.
  std::size_t next_byte = 0;
  std::size_t next_size = 0;
  std::string replies;
  TravelCharge charge;  // For `replies`.
  // Bytes of the value with which the item `end` replies. It has not been executed, because there was no memory for
  // them. 0: there was.
  std::size_t value_due = 0;
  // The connection has memory for a value of so many bytes: that with which the item `end` replies.
  std::size_t value_charged = 0;

  std::size_t held_bytes() const noexcept { return bytes.size() + items.size() * sizeof(Item); }
};

// The way of one connection's commands to one shard. One batch travels at a time, so that commands stay in order. It
// outlives its connection until the commands that change the store have been executed. Used on the loop of the
// connection, apart from `gone` and what is used on the target's loop.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // `budget`: of the home. It outlives the threads of both loops. `travelling`: see TravelCharge.
  Lane(StoreSite& home, StoreSite& target, std::uint64_t connection, const hawser::detail::ReceiveBudget& budget,
       std::shared_ptr<std::atomic<std::size_t>> travelling) noexcept
      : home_(home),
        target_(target),
        connection_(connection),
        free_bytes_(free_bytes_of(target.store().shards())),
        budget_(budget),
        travelling_bytes_(std::move(travelling)) {}

  // The batch that the next commands are added to.
  ForwardedBatch& filling() {
    if (filling_ == nullptr) filling_ = std::make_unique<ForwardedBatch>(travelling_bytes_.get());
    return *filling_;
  }
  bool moving() const noexcept { return travelling_; }
  // The next batch to travel, or the one whose rest waits; null if there is none or it travels.
  ForwardedBatch* waiting() noexcept { return current_ != nullptr ? current_.get() : filling_.get(); }
  // Sends that batch.
  void send();
  // The connection has ended: commands that only read are not executed any more, and nothing waits for the log.
  void end();

 private:
  // The lanes of a connection share what is not charged.
  static std::size_t free_bytes_of(unsigned shards) noexcept;
  // On the target's loop.
  void run(std::unique_ptr<ForwardedBatch> batch);
  void execute(ForwardedBatch& batch) const;
  bool charge(ForwardedBatch& batch, const ForwardedBatch::Item& item, Arguments arguments, std::size_t replies) const;
  void stop_waiting();
  static void go_back(std::shared_ptr<Lane> lane, std::unique_ptr<ForwardedBatch> batch);
  static void fail_writes(ForwardedBatch& batch, const std::string& why);
  void returned(std::unique_ptr<ForwardedBatch> batch);

  StoreSite& home_;
  StoreSite& target_;
  const std::uint64_t connection_;  // Its number at home.
  const std::size_t free_bytes_;    // Replies of so many bytes are not charged on their way.
  const hawser::detail::ReceiveBudget& budget_;
  const std::shared_ptr<std::atomic<std::size_t>> travelling_bytes_;
  std::atomic<bool> gone_ = false;
  bool travelling_ = false;
  std::unique_ptr<ForwardedBatch> current_;
  std::unique_ptr<ForwardedBatch> filling_;
  // Used on the target's loop: a batch whose changes are not durable yet, and the number with which it waits.
  std::unique_ptr<ForwardedBatch> held_;
  std::uint64_t durable_ = 0;
};

}  // namespace hawser::kv
