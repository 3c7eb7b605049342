#pragma once

#include <cstddef>

#include "hawser/detail/receive_account.h"
#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/connection.h"
#include "rpc/session/send_charge.h"

namespace hawser::rpc {

// Charges what waits on a connection to be sent, and lowers the mark while memory is scarce: that many bytes may wait
// before the peer is not read any more. docs/decisions/0059. Loop's thread only.
class BacklogCharge final : detail::LaggingCharge {
 public:
  // A backlog is charged at the end of the tick, because it may be sent by then, and more than this at once.
  static constexpr std::size_t charged_later_max = std::size_t{1} << 20;
  // Who pays. `budget` is that of `account`; null: nothing is charged. `total`: see SendCharge.
  struct Payer {
    detail::ReceiveAccount& account;
    detail::ReceiveBudget* budget = nullptr;
    OwnedCounter* total = nullptr;
  };

  // `session` is the one of `connection`. It is notified when what waits is below a mark that has changed, and ends
  // when there is no memory to notify those who wait. All arguments outlive this object, or end() is called before.
  BacklogCharge(Loop& loop, transport::Connection& connection, transport::MessageSink& session, const Payer& payer,
                std::size_t bytes_max) noexcept
      : loop_(loop),
        connection_(connection),
        session_(session),
        budget_(payer.budget),
        charge_(payer.account, payer.total),
        bytes_max_(bytes_max),
        mark_(bytes_max) {}
  BacklogCharge(const BacklogCharge&) = delete;
  BacklogCharge& operator=(const BacklogCharge&) = delete;
  ~BacklogCharge() { end(); }

  // The connection's high watermark: at most the bytes of change_max().
  std::size_t mark() const noexcept { return mark_; }
  bool room() const noexcept { return connection_.backlog() <= mark_; }
  // The mark while memory is left.
  void change_max(std::size_t bytes_max);
  // Must be called when data has been committed. It may lower the mark, and end the connection.
  void on_commit() noexcept {
    if (connection_.backlog() > SendCharge::step_bytes) [[unlikely]]
      charge_long();
  }
  // The connection has ended: nothing waits any more.
  void end() noexcept;

 private:
  void update() noexcept override;
  void charge_long() noexcept;
  void charge_and_watch() noexcept;
  void check() noexcept;
  void set_mark(std::size_t bytes);

  Loop& loop_;
  transport::Connection& connection_;
  transport::MessageSink& session_;
  detail::ReceiveBudget* const budget_;  // Has this object in its list while charge_ is not 0.
  SendCharge charge_;
  std::size_t bytes_max_;
  std::size_t mark_;
  bool ended_ = false;
  // Runs while a backlog is or may have to be charged: the connection does not notify of each byte that it has sent.
  MemberTimer<&BacklogCharge::check> timer_{*this};
};

}  // namespace hawser::rpc
