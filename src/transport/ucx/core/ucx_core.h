#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/external_block.h"
#include "hawser/bytes.h"
#include "hawser/loop.h"
#include "hawser/time.h"
#include "transport/ucx/core/ucx_context.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport {

class UcxCore;
struct UcxEndpoint;
struct UcxOperation;

// Whom UCX's work is for: a connection. All but arrived() is called from UcxWorker's poll, never from within UCX.
class UcxTarget {
 public:
  // Within UCX: only records. `block` holds `data` with one reference that is the target's now; `rendezvous` is UCX's
  // description of a payload that is still with the peer, to be fetched or released.
  struct ActiveMessage {
    UcxHeader header;
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Block* block = nullptr;
    void* rendezvous = nullptr;
  };
  virtual void arrived(const ActiveMessage& arrival) = 0;
  // An endpoint that a listener made for us.
  virtual void connected(std::unique_ptr<UcxEndpoint> endpoint) = 0;
  // An operation of ours has ended. Gives it back by UcxCore::recycle() when it is done with it.
  virtual void ended(UcxOperation& operation) = 0;
  // Something has arrived, or the endpoint has failed.
  virtual void process() = 0;

 protected:
  ~UcxTarget() = default;
};

// A send or a fetch that UCX is at, and what must stay in place meanwhile.
struct UcxOperation {
  enum class Kind : std::uint8_t { send, fetch };
  UcxCore* core = nullptr;
  UcxTarget* target = nullptr;      // Null once nobody waits for it.
  Block* block = nullptr;           // A reference, to what is sent or where it is fetched to, that is dropped with it.
  SendCompletion* owner = nullptr;  // To be notified by the target when it is done.
  void* tag = nullptr;              // The target's own, as are the next two.
  std::size_t counted = 0;
  std::size_t position = 0;
  std::size_t bytes = 0;  // Of a fetch.
  std::array<std::byte, UcxHeader::bytes> header{};
  Kind kind = Kind::send;
  bool done = false;  // UCX is through with it.
  ucs_status_t status = UCS_OK;
  UcxOperation* next = nullptr;
};

// One way to a peer's worker.
struct UcxEndpoint {
  ucp_ep_h ep = nullptr;
  UcxCore* core = nullptr;
  std::uint64_t token = 0;  // Of whom it is for; 0 while it is being closed.
  ucs_status_t failed = UCS_OK;
  void* closing = nullptr;  // UCX's request, while it is flushed or closed.
  bool flushing = false;
  bool flushed = false;
  bool waiting = false;        // Flushed, and held open until the peer closes its end, or `until`.
  Time until{};                // By then it is closed, if it is to wait.
  std::shared_ptr<void> kept;  // Destroyed, by the loop, when the endpoint is closed or waits.
};

// How an endpoint is closed.
enum class UcxClose : std::uint8_t {
  // What was sent leaves first. With UcxErrorMode::peer the endpoint is then held open until the peer closes its end,
  // at most UcxCore::wait_max: closing tells the peer's UCX, which drops what it has not read yet.
  flush,
  // What was sent leaves first; the peer has gone through all there is.
  flush_peer_gone,
  // What is under way is dropped if UCX can do that.
  cut,
};

// A UCX worker and all that UCX may still touch. It is used by one thread at a time: the loop's, and, once abandoned,
// the one that drops the last piece of data that was kept, which destroys it.
class UcxCore {
 public:
  static constexpr Duration wait_max = std::chrono::seconds(1);

  // `loop` outlives it until abandon().
  static Result<UcxCore*> make(std::shared_ptr<UcxContext> context, Loop& loop);
  UcxCore(const UcxCore&) = delete;
  UcxCore& operator=(const UcxCore&) = delete;
  // Ends it: now, or when what it lent is back and UCX has nothing under way, since UCX ends the process if a worker is
  // destroyed while an endpoint is still being wired up.
  void abandon() noexcept;
  // Makes the progress of the abandoned ones of its runtime.
  void progress_abandoned() noexcept { context_->lingering().progress(); }

  const UcpLibrary& ucp() const noexcept { return ucp_; }
  const UcxContext& context() const noexcept { return *context_; }
  ucp_worker_h get() const noexcept { return worker_; }

  // True if there was something to do. Never from within UCX.
  bool progress() noexcept { return ucp_.worker_progress(worker_) != 0; }

  UcxOperation* acquire_operation(UcxTarget& target, UcxOperation::Kind kind);
  // Drops the operation's block. It must not be with UCX.
  void recycle(UcxOperation& operation) noexcept;
  // Sends `size` bytes at `data`, which lie in the operation's block, with its header. OK: it has left, and is the
  // caller's again; IN_PROGRESS: UcxTarget::ended() follows; anything else: it failed, and is the caller's again.
  ucs_status_t send(UcxEndpoint& endpoint, UcxOperation& operation, const std::byte* data, std::size_t size,
                    std::uint32_t flags) noexcept;
  // Fetches a payload, whose description UCX takes over; UcxTarget::ended() follows unless an error is returned.
  ucs_status_t fetch(void* rendezvous, UcxOperation& operation, std::byte* memory, std::size_t size) noexcept;
  // Lets go of data, or of a payload, that is not wanted.
  void release(void* data) noexcept { ucp_.am_data_release(worker_, data); }
  // Counts references to data of UCX's that it may not take back; one reference.
  Block* loan(void* data);
  // Takes back what other threads have let go of.
  void reclaim_returned() noexcept;

  // For the target with this token.
  Result<std::unique_ptr<UcxEndpoint>> connect(ucp_ep_params_t& params, std::uint64_t token);
  // Closes it in the background.
  void close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept;
  // Closes what waits for its peer and was to by `now`. When to ask next; Time::max() if none waits.
  Time end_waiting(Time now) noexcept;
  std::size_t closing() const noexcept { return closing_.size(); }
  // Endpoints closed so far that UCX keeps, with their sockets, until the worker is destroyed: those of
  // UcxErrorMode::none.
  std::size_t spent() const noexcept { return spent_; }
  void drop_closed() noexcept;
  // An endpoint has been closed since the last drop_closed().
  bool any_closed() const noexcept { return any_closed_; }
  // Nothing is with UCX any more.
  bool settled() noexcept {
    drop_closed();
    return closing_.empty() && with_ucx_ == 0;
  }

  // What has ended since the last call, oldest first.
  UcxOperation* take_ended() noexcept;
  bool any_ended() const noexcept { return ended_first_ != nullptr; }
  // Asked repeatedly before the end, with progress in between: true once the worker can be destroyed. Nothing must be
  // sent any more.
  bool finish() noexcept;
  // The tokens of endpoints that have failed.
  std::vector<std::uint64_t>& failed() noexcept { return failed_; }

 private:
  friend class UcxLingering;
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

  std::vector<std::unique_ptr<UcxOperation>> operations_;  // All there are.
  UcxOperation* free_operations_ = nullptr;
  std::size_t with_ucx_ = 0;  // Operations.
  UcxOperation* ended_first_ = nullptr;
  UcxOperation* ended_last_ = nullptr;
  std::vector<std::unique_ptr<UcxEndpoint>> closing_;
  bool any_closed_ = false;
  std::size_t spent_ = 0;
  bool finishing_ = false;
  bool finished_ = false;
  std::vector<std::uint64_t> failed_;

  // Data that is lent. The loop's thread takes and gives without the lock until the core is abandoned.
  std::vector<std::unique_ptr<Data>> all_data_;
  Data* free_data_ = nullptr;
  std::size_t loaned_ = 0;
  std::atomic<bool> any_returned_{false};
  std::atomic<bool> abandoned_{false};
  bool lingering_ = false;  // Abandoned, and not settled yet.
  std::mutex mutex_;
  Data* returned_ = nullptr;  // By other threads; guarded by mutex_, as is all of the above once abandoned.
};

}  // namespace hawser::transport
