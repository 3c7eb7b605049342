#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/loop.h"
#include "hawser/time.h"
#include "heap/external_block.h"
#include "transport/ucx/core/ucx_context.h"
#include "transport/ucx/core/ucx_operations.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport {

class UcxCore;
struct UcxEndpoint;

// A connection, as UCX's callbacks see it. All functions except arrived() are called from UcxWorker::poll(), never from
// a UCX callback.
class UcxTarget {
 public:
  // `block` holds `data`; the target owns one reference to it. `rendezvous` is UCX's description of a payload that is
  // still at the peer; the target must fetch or release it.
  struct ActiveMessage {
    UcxHeader header;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Block* block = nullptr;
    void* rendezvous = nullptr;
  };
  // Called from a UCX callback: must only record the active message.
  virtual void arrived(const ActiveMessage& arrival) = 0;
  // The listener has created the endpoint of this connection.
  virtual void connected(std::unique_ptr<UcxEndpoint> endpoint) = 0;
  // An operation of the target has completed. The target passes it to UcxCore::recycle() when it does not need it.
  virtual void ended(UcxOperation& operation) = 0;
  // An active message has arrived, or the endpoint has failed.
  virtual void process() = 0;

 protected:
  ~UcxTarget() = default;
};

// A UCX endpoint: sends to one worker of a peer.
struct UcxEndpoint {
  ucp_ep_h ep = nullptr;
  UcxCore* core = nullptr;
  std::uint64_t token = 0;  // Token of its target; 0 while the endpoint is being closed.
  ucs_status_t failed = UCS_OK;
  void* closing = nullptr;   // UCX's request while the endpoint is flushed or closed.
  std::size_t with_ucx = 0;  // Operations that UCX has not completed.
  bool draining = false;     // Its connection has ended. UCX closes it when `with_ucx` is 0.
  bool heard = false;        // Its connection has received a message, so the wire-up is complete.
  bool flushing = false;
  bool flushed = false;
  Time flush_until{};           // Time at which a flush that has not ended is given up; Time{}: UCX ends it.
  bool waiting = false;         // Flushed, and held open until the peer closes its endpoint, or until `until`.
  bool for_operations = false;  // Waits no longer than for its operations.
  Time until{};                 // Time at which a waiting endpoint is closed, and a draining one's `kept` is destroyed.
  std::shared_ptr<void> kept;   // The loop destroys it when the endpoint is closed or waits.
};

// How an endpoint is closed.
enum class UcxClose : std::uint8_t {
  // The endpoint is flushed first. With UcxErrorMode::peer it is then held open until the peer closes its endpoint, at
  // most for UcxCore::wait_max, because the peer's UCX drops data that it has not read when this side closes. The flush
  // of an endpoint whose wire-up is not complete is given up after UcxOptions::wire_up_timeout.
  flush,
  // The endpoint is flushed first, and closed after that when its fetches have completed: the peer has read everything
  // or is gone. Both are given up after UcxCore::wait_max.
  flush_peer_gone,
  // Data that is on its way is dropped if UCX can do that.
  cut,
};

// A UCX worker and all memory that UCX may still access. One thread at a time uses it: the loop's thread, and after
// abandon() the thread that returns the last loaned block, which destroys the core, or that calls
// UcxLingering::progress().
class UcxCore {
 public:
  static constexpr Duration wait_max = std::chrono::seconds(1);

  // `loop` must live until abandon() returns.
  static Result<UcxCore*> make(std::shared_ptr<UcxContext> context, Loop& loop);
  UcxCore(const UcxCore&) = delete;
  UcxCore& operator=(const UcxCore&) = delete;
  // Destroys the core, or lets it be destroyed later: when all loaned blocks have been returned and UCX has completed
  // all operations. UCX ends the process if a worker is destroyed during the wire-up of an endpoint.
  void abandon() noexcept;
  // Calls UCX's progress for the abandoned cores of the same runtime.
  void progress_abandoned() noexcept { context_->lingering().progress(); }

  const UcpLibrary& ucp() const noexcept { return ucp_; }
  const UcxContext& context() const noexcept { return *context_; }
  ucp_worker_h get() const noexcept { return worker_; }

  // Calls UCX's progress once. Returns true if UCX did any work. Must not be called from a UCX callback.
  bool progress() noexcept { return ucp_.worker_progress(worker_) != 0; }

  UcxOperation* acquire_operation(UcxTarget& target, UcxOperation::Kind kind) {
    return operations_.acquire(*this, target, kind);
  }
  // See UcxOperations::recycle().
  void recycle(UcxOperation& operation) noexcept { operations_.recycle(operation); }
  // Sends the operation's header and `size` bytes at `data`, which must lie in the operation's block. UCS_OK: the data
  // was sent, and the caller owns the operation again. UCS_INPROGRESS: UcxTarget::ended() follows. Any other status:
  // the send failed, and the caller owns the operation again.
  ucs_status_t send(UcxEndpoint& endpoint, UcxOperation& operation, const std::byte* data, std::size_t size,
                    std::uint32_t flags) noexcept;
  // Fetches a payload of `size` bytes to `memory`. UCX owns `rendezvous` from now on. UcxTarget::ended() follows unless
  // an error is returned. `endpoint` leads to the peer whose payload it is; null if there is none yet.
  ucs_status_t fetch(UcxEndpoint* endpoint, void* rendezvous, UcxOperation& operation, std::byte* memory,
                     std::size_t size) noexcept;
  // Releases data of UCX, or the description of a payload that is not fetched.
  void release(void* data) noexcept { ucp_.am_data_release(worker_, data); }
  // Returns a block over data that UCX has handed out, with one reference. UCX gets the data back after the last one.
  Block* loan(void* data);
  // Returns the data to UCX whose blocks other threads have released.
  void reclaim_returned() noexcept;

  // Creates an endpoint for the target with this token.
  Result<std::unique_ptr<UcxEndpoint>> connect(ucp_ep_params_t& params, std::uint64_t token);
  // Closes the endpoint in the background. With UcxErrorMode::none UCX 1.13 ends the process if an endpoint is closed
  // that has operations under way, so it is closed when UCX has completed them. The object that it keeps is destroyed
  // after wait_max at the latest, so that a peer that fetches nothing learns of the end.
  void close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept;
  // Closes the endpoints whose wait for the peer, or whose flush, ends at `now` or before. Returns the time at which to
  // call it again, or Time::max() if no endpoint waits.
  Time end_waiting(Time now) noexcept;
  std::size_t closing() const noexcept { return closing_.size(); }
  // Number of closed endpoints that UCX keeps, with their sockets, until the worker is destroyed. UCX does so with
  // UcxErrorMode::none.
  std::size_t spent() const noexcept { return spent_; }
  // Bytes of the blocks of failed fetches. They are released when the worker is destroyed.
  std::size_t doubtful_bytes() const noexcept { return operations_.doubtful_bytes(); }
  void drop_closed() noexcept;
  // Returns whether an endpoint has been closed since the last drop_closed().
  bool any_closed() const noexcept { return any_closed_; }
  // Returns true when UCX has completed all operations and closed all endpoints.
  bool settled() noexcept {
    drop_closed();
    return closing_.empty() && with_ucx_ == 0;
  }

  // Returns the oldest operation that has completed and was not returned yet, or null.
  UcxOperation* take_ended() noexcept { return operations_.take_ended(); }
  bool any_ended() const noexcept { return operations_.any_ended(); }
  // Prepares the destruction. The caller calls it repeatedly, with progress() in between, until it returns true: then
  // the worker can be destroyed. Nothing may be sent after the first call.
  bool finish() noexcept;
  // Tokens of the endpoints that have failed.
  std::vector<std::uint64_t>& failed() noexcept { return failed_; }

 private:
  friend class UcxLingering;
  // The flush of the worker that finish() begins.
  enum class Flush : std::uint8_t { not_begun, under_way, ended };
  class Data final : public ExternalBlock {
   public:
    explicit Data(UcxCore& core) noexcept : ExternalBlock(&Data::returned), core_(core) {}
    using ExternalBlock::loan;
    static void returned(ExternalBlock& block) noexcept;
    UcxCore& core_;
    void* data = nullptr;
    Data* next = nullptr;
  };

  UcxCore(std::shared_ptr<UcxContext> context, Loop& loop, ucp_worker_h worker)
      : context_(std::move(context)), ucp_(context_->ucp()), loop_(&loop), worker_(worker) {}
  ~UcxCore();
  bool linger() noexcept;
  void reclaim(Data& data) noexcept;

  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_fetched(void* request, ucs_status_t status, std::size_t size, void* user_data);
  static void on_failed(void* arg, ucp_ep_h ep, ucs_status_t status);
  // Count the operations that UCX has.
  void begin(UcxEndpoint* endpoint, UcxOperation& operation) noexcept;
  void leave(UcxOperation& operation) noexcept;
  void flushed(UcxEndpoint& endpoint) noexcept;
  void end_endpoint(UcxEndpoint& endpoint) noexcept;
  static void on_flushed(void* request, ucs_status_t status, void* user_data);
  static void on_finished(void* request, ucs_status_t status, void* user_data);
  static void on_closed(void* request, ucs_status_t status, void* user_data);
  void end(UcxOperation& operation, ucs_status_t status) noexcept;

  const std::shared_ptr<UcxContext> context_;
  const UcpLibrary& ucp_;
  Loop* const loop_;
  const ucp_worker_h worker_;

  UcxOperations operations_;
  std::size_t with_ucx_ = 0;  // Operations that UCX has not completed.
  std::vector<std::unique_ptr<UcxEndpoint>> closing_;
  bool any_closed_ = false;
  std::size_t spent_ = 0;
  Flush flush_ = Flush::not_begun;
  std::vector<std::uint64_t> failed_;

  // Data on loan. Until the core is abandoned, the loop's thread uses these members without the lock.
  std::vector<std::unique_ptr<Data>> all_data_;
  Data* free_data_ = nullptr;
  std::size_t loaned_ = 0;
  std::atomic<bool> any_returned_{false};
  std::atomic<bool> abandoned_{false};
  bool lingering_ = false;  // Abandoned, and UCX has not completed everything yet.
  std::mutex mutex_;
  Data* returned_ = nullptr;  // From other threads. mutex_ guards it, and all of the above once abandoned.
};

}  // namespace hawser::transport
