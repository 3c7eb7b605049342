#include "transport/ucx/core/ucx_worker.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/kernel_random.h"
#include "base/log_line.h"
#include "base/try.h"
#include "exec/live_loops.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {
namespace {

constexpr std::size_t block_bytes = std::size_t{64} << 10;

// One in this many polls calls UCX's progress for the abandoned workers.
constexpr unsigned abandoned_rounds = 1024;

// A token is the slot in the low bits and a random number in the rest, so that a peer cannot guess the token of
// somebody else's connection.
constexpr unsigned slot_bits = 17;
constexpr std::uint64_t slot_mask = (std::uint64_t{1} << slot_bits) - 1;

Result<std::uint64_t> random_bits() {
  try {
    return kernel_random();
  } catch (const std::system_error&) {
  }
  return fail(
      Error::of_transport(ErrorCode::unavailable, "the system gives no random bytes for a UCX connection's token"));
}

}  // namespace

Result<std::shared_ptr<UcxWorker>> UcxWorker::make(std::shared_ptr<UcxContext> context, Loop& loop) {
  const UcpLibrary& ucp = context->ucp();
  TRY(UcxCore* core, UcxCore::make(context, loop));
  const auto abandon = [](UcxCore* unused) { unused->abandon(); };
  std::unique_ptr<UcxCore, decltype(abandon)> made(core, abandon);

  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  if (const ucs_status_t status = ucp.worker_query(made->get(), &attributes); status != UCS_OK) {
    return fail(ucx_error(ucp, "asking a UCX worker for its address", status, ErrorScope::transport));
  }
  const auto bytes =
      std::as_bytes(std::span(reinterpret_cast<const char*>(attributes.address), attributes.address_length));
  std::vector<std::byte> address(bytes.begin(), bytes.end());
  ucp.worker_release_address(made->get(), attributes.address);

  int event_fd = -1;
  if (context->events()) {
    if (const ucs_status_t status = ucp.worker_get_efd(made->get(), &event_fd); status != UCS_OK) {
      return fail(ucx_error(ucp, "asking a UCX worker for its event descriptor (Wait::busy_poll needs none)", status,
                            ErrorScope::transport));
    }
  }
  std::shared_ptr<UcxWorker> worker(new UcxWorker(made.release(), loop, std::move(address)));
  worker->event_fd_ = event_fd;
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.cb = &UcxWorker::on_message;
  handler.arg = worker.get();
  if (const ucs_status_t status = ucp.worker_set_am_recv_handler(worker->core_->get(), &handler); status != UCS_OK) {
    return fail(ucx_error(ucp, "asking UCX for active messages", status, ErrorScope::transport));
  }
  if (event_fd >= 0) loop.poller().watch(event_fd, *worker);
  return worker;
}

UcxWorker::UcxWorker(UcxCore* core, Loop& loop, std::vector<std::byte> address)
    : loop_(loop), core_(core), address_(std::move(address)) {}

UcxWorker::~UcxWorker() {
  if (std::exchange(polled_, false)) loop_.remove_source(*this);
  if (event_fd_ >= 0 && exec::is_live_loop(loop_)) loop_.poller().unwatch(event_fd_, *this);
  listener_.reset();
  progress_until(
      [this] {
        core_->progress_abandoned();
        return core_->finish();
      },
      drain_max);
  if (block_ != nullptr) block_->release();
  core_->abandon();
}

// ---- Targets ----

Result<std::uint64_t> UcxWorker::enter(UcxTarget& target) {
  if (targets_ >= options().connections_max) {
    return fail(Error::of_transport(
        ErrorCode::overloaded,
        std::to_string(targets_) + " UCX connections (UcxOptions::connections_max) are on this loop already"));
  }
  TRY(const std::uint64_t bits, random_bits());
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = {.target = &target, .token = (bits & ~slot_mask) | slot};
  ++targets_;
  if (!std::exchange(polled_, true)) loop_.add_source(*this);
  return slots_[slot].token;
}

void UcxWorker::leave(std::uint64_t token) noexcept {
  Slot* const slot = find(token);
  if (slot == nullptr) return;
  const auto index = static_cast<std::uint32_t>(slot - slots_.data());
  if (slot->dirty) std::erase(dirty_, index);
  *slot = {};
  free_slots_.push_back(index);
  --targets_;
}

UcxWorker::Slot* UcxWorker::find(std::uint64_t token) noexcept {
  const std::uint64_t slot = token & slot_mask;
  return slot < slots_.size() && slots_[slot].target != nullptr && slots_[slot].token == token ? &slots_[slot]
                                                                                               : nullptr;
}

void UcxWorker::mark(Slot& slot) {
  if (!std::exchange(slot.dirty, true)) dirty_.push_back(static_cast<std::uint32_t>(&slot - slots_.data()));
}

void UcxWorker::process_soon(std::uint64_t token) {
  if (Slot* const slot = find(token)) mark(*slot);
}

void UcxWorker::close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept {
  core_->close(std::move(endpoint), how);
  if (!waiting_.running()) end_waiting();
}

void UcxWorker::end_waiting() noexcept {
  const Time next = core_->end_waiting(loop_.now());
  if (next != Time::max()) waiting_.start(loop_, next);
}

Result<void> UcxWorker::listen(const std::string& address) {
  TRY(std::unique_ptr<UcxListener> listener, UcxListener::make(*this, address));
  listener_ = std::move(listener);
  return {};
}

void UcxWorker::deliver(std::uint64_t token, std::unique_ptr<UcxEndpoint> endpoint) {
  Slot* const slot = find(token);
  if (slot == nullptr) return close(std::move(endpoint), UcxClose::cut);
  endpoint->token = token;
  slot->target->connected(std::move(endpoint));
}

// ---- UCX callbacks: they only record ----

ucs_status_t UcxWorker::on_message(void* arg, const void* header, std::size_t header_bytes, void* data,
                                   std::size_t size, const ucp_am_recv_param_t* param) noexcept {
  return static_cast<UcxWorker*>(arg)->on_active_message({static_cast<const std::byte*>(header), header_bytes}, data,
                                                         size, *param);
}

// With UCS_OK UCX releases the data, and informs the sender of a payload that it will not be fetched.
ucs_status_t UcxWorker::on_active_message(Bytes bytes, void* data, std::size_t size, const ucp_am_recv_param_t& param) {
  const std::optional<UcxHeader> header = UcxHeader::load(bytes);
  if (!header) return UCS_OK;
  const bool rendezvous = (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  Slot* const slot = find(header->token);
  if (slot == nullptr) return UCS_OK;
  if (header->kind == UcxHeader::Kind::hello && (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 &&
      listener_ != nullptr) {
    listener_->named(header->token, param.reply_ep);
  }
  mark(*slot);
  UcxTarget::ActiveMessage arrival{.header = *header, .size = size};
  ucs_status_t held = UCS_OK;
  if (rendezvous) {
    arrival.rendezvous = data;
    held = UCS_INPROGRESS;
  } else if (size != 0) {
    if (size > copied_bytes_max && (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
      arrival.data = static_cast<const std::byte*>(data);
      arrival.block = core_->loan(data);
      held = UCS_INPROGRESS;
    } else {
      arrival.data = copy(data, size, arrival.block);
    }
  }
  slot->target->arrived(arrival);
  return held;
}

std::byte* UcxWorker::copy(const void* data, std::size_t size, Block*& block) {
  if (block_ == nullptr || block_->size() - used_ < size) {
    if (block_ != nullptr) block_->release();
    block_ = Block::allocate(std::max(size, block_bytes));
    used_ = 0;
  }
  std::byte* const to = block_->data() + used_;
  std::memcpy(to, data, size);
  used_ += UcxEntry::padded(size);
  used_ = std::min(used_, block_->size());
  block_->retain();
  block = block_;
  return to;
}

// ---- Polling ----

bool UcxWorker::poll() {
  bool any = false;
  for (unsigned i = 0; i < options().poll_burst && core_->progress(); ++i) any = true;
  any = deliver() || any;
  if (any) {
    arms_in_vain_ = 0;
    arm_rest_ = arm_rest_min;
  }
  return any;
}

bool UcxWorker::deliver() {
  core_->reclaim_returned();
  if (++rounds_ % abandoned_rounds == 0) core_->progress_abandoned();
  const bool called = listener_ != nullptr && listener_->any();
  if (!called && dirty_.empty() && !core_->any_ended() && !core_->any_closed() && core_->failed().empty()) return false;
  if (std::exchange(delivering_, true)) return true;
  const std::shared_ptr<UcxWorker> self = shared_from_this();
  if (called) listener_->process();
  for (UcxOperation* operation = core_->take_ended(); operation != nullptr;) {
    UcxOperation& one = *std::exchange(operation, operation->next);
    if (one.target != nullptr) {
      one.target->ended(one);
    } else {
      core_->recycle(one);
    }
  }
  for (const std::uint64_t token : core_->failed()) process_soon(token);
  core_->failed().clear();
  working_.swap(dirty_);
  for (const std::uint32_t index : working_) {
    Slot& slot = slots_[index];
    if (!std::exchange(slot.dirty, false)) continue;
    slot.target->process();
  }
  working_.clear();
  core_->drop_closed();
  delivering_ = false;
  // Without targets and closing endpoints there is nothing to poll for.
  if (targets_ == 0 && core_->settled() && std::exchange(polled_, false)) loop_.remove_source(*this);
  return true;
}

bool UcxWorker::arm() {
  if (listener_ != nullptr && listener_->any()) return false;
  if (!dirty_.empty() || core_->any_ended() || core_->any_closed()) return false;
  if (event_fd_ < 0) return true;
  const ucs_status_t status = arm_events();
  if (status != UCS_OK) return rest(status);
  arms_in_vain_ = 0;
  arm_rest_ = arm_rest_min;
  return true;
}

ucs_status_t UcxWorker::arm_events() noexcept {
  if (const ucs_status_t status = core_->ucp().worker_arm(core_->get()); status != UCS_OK) return status;
  // A descriptor within the event descriptor may be ready since before the last sleep. The poller was notified of that
  // edge then, and is not notified again (UCX's TCP handles one socket in a call of progress).
  pollfd ready{.fd = event_fd_, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) == 0 ? UCS_OK : UCS_INPROGRESS;
}

bool UcxWorker::rest(ucs_status_t status) {
  if (++arms_in_vain_ < arms_in_vain_max) return false;
  if (arm_timer_.running()) return true;
  if (!std::exchange(arm_reported_, true)) {
    log_line(loop_.options().log, LogLevel::warning, "transport", [&] {
      return "UCX does not let this loop sleep (" + std::string(core_->ucp().status_string(status)) +
             "), and finds no work: the loop polls UCX up to every " +
             std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(arm_rest_max).count()) +
             " ms, so calls over UCX may take longer; restart this process, or set UcxErrorMode::peer if peers were "
             "killed";
    });
  }
  arm_timer_.start(loop_, loop_.after(arm_rest_));
  arm_rest_ = std::min(2 * arm_rest_, arm_rest_max);
  return true;
}

bool UcxWorker::progress_until(const std::function<bool()>& done, Duration most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!done()) {
    if (!core_->progress() && std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

}  // namespace hawser::transport
