#include "transport/ucx/core/ucx_core.h"

#include <algorithm>
#include <utility>

namespace hawser::transport {
namespace {

ucs_status_t drop_message(void*, const void*, std::size_t, void*, std::size_t, const ucp_am_recv_param_t*) {
  return UCS_OK;
}

}  // namespace

Result<UcxCore*> UcxCore::make(std::shared_ptr<UcxContext> context, Loop& loop) {
  const UcpLibrary& ucp = context->ucp();
  ucp_worker_params_t params{};
  params.field_mask =
      UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT | UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  params.am_alignment = UcxEntry::alignment;
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
  ucp_worker_h worker = nullptr;
  if (const ucs_status_t status = ucp.worker_create(context->get(), &params, &worker); status != UCS_OK) {
    return fail(ucx_error(ucp, "making a UCX worker (ucx_info -d lists the transports that there are)", status,
                          ErrorScope::transport));
  }
  return new UcxCore(std::move(context), loop, worker);
}

UcxCore::~UcxCore() {
  // UCX requires that the requests of endpoints are freed before their worker is destroyed.
  for (const std::unique_ptr<UcxEndpoint>& endpoint : closing_) {
    if (endpoint->ep != nullptr && endpoint->closing != nullptr) ucp_.request_free(endpoint->closing);
  }
  // Operations may complete within this call.
  ucp_.worker_destroy(worker_);
  operations_.release_blocks();
}

void UcxCore::abandon() noexcept {
  reclaim_returned();
  end_waiting(Time::max());
  // An endpoint may never close; the object that it keeps must not outlive the loop.
  for (const std::unique_ptr<UcxEndpoint>& endpoint : closing_) {
    if (endpoint->kept != nullptr) loop_->post([kept = std::move(endpoint->kept)] {});
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
  handler.cb = &drop_message;
  ucp_.worker_set_am_recv_handler(worker_, &handler);
  bool last = false;
  {
    UcxLingering& list = context_->lingering();
    const std::lock_guard list_lock(list.mutex_);
    const std::lock_guard lock(mutex_);
    abandoned_.store(true, std::memory_order_release);
    while (returned_ != nullptr) reclaim(*std::exchange(returned_, returned_->next));
    lingering_ = !finish();
    last = !lingering_ && loaned_ == 0;
    if (lingering_) list.cores_.push_back(this);
  }
  if (last) delete this;
}

// Returns true if the core has been destroyed, or if the return of its last loaned block will destroy it.
bool UcxCore::linger() noexcept {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    progress();
    for (UcxOperation* operation = take_ended(); operation != nullptr;) {
      recycle(*std::exchange(operation, operation->next));
    }
    lingering_ = !finish();
    if (lingering_) return false;
    last = loaned_ == 0;
  }
  if (last) delete this;
  return true;
}

void UcxLingering::progress() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || cores_.empty()) return;
  std::erase_if(cores_, [](UcxCore* core) { return core->linger(); });
}

// An assertion in UCX fails if a worker is destroyed while its endpoints, including closed ones, still have messages of
// their wire-up to send.
bool UcxCore::finish() noexcept {
  if (!settled()) return false;
  if (flush_ == Flush::not_begun) {
    flush_ = Flush::under_way;
    ucp_request_param_t params;
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.send = &UcxCore::on_finished;
    params.user_data = this;
    if (!UCS_PTR_IS_PTR(ucp_.worker_flush_nbx(worker_, &params))) flush_ = Flush::ended;
  }
  return flush_ == Flush::ended;
}

void UcxCore::on_finished(void* request, ucs_status_t, void* user_data) {
  UcxCore& core = *static_cast<UcxCore*>(user_data);
  core.ucp_.request_free(request);
  core.flush_ = Flush::ended;
}

// ---- Operations ----

ucs_status_t UcxCore::send(UcxEndpoint& endpoint, UcxOperation& operation, const std::byte* data, std::size_t size,
                           std::uint32_t flags) noexcept {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = flags;
  params.cb.send = &UcxCore::on_sent;
  params.user_data = &operation;
  const ucs_status_ptr_t sent =
      ucp_.am_send_nbx(endpoint.ep, 0, operation.header.data(), UcxHeader::bytes, data, size, &params);
  if (sent == nullptr) return UCS_OK;
  if (UCS_PTR_IS_ERR(sent)) return UCS_PTR_STATUS(sent);
  begin(&endpoint, operation);
  return UCS_INPROGRESS;
}

ucs_status_t UcxCore::fetch(UcxEndpoint* endpoint, void* rendezvous, UcxOperation& operation, std::byte* memory,
                            std::size_t size) noexcept {
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv_am = &UcxCore::on_fetched;
  params.user_data = &operation;
  operation.bytes = size;
  begin(endpoint, operation);
  const ucs_status_ptr_t fetched = ucp_.am_recv_data_nbx(worker_, rendezvous, memory, size, &params);
  if (UCS_PTR_IS_ERR(fetched)) {
    leave(operation);
    return UCS_PTR_STATUS(fetched);
  }
  if (fetched == nullptr) end(operation, UCS_OK);
  return UCS_OK;
}

void UcxCore::on_sent(void* request, ucs_status_t status, void* user_data) {
  UcxOperation& operation = *static_cast<UcxOperation*>(user_data);
  operation.core->ucp_.request_free(request);
  operation.core->end(operation, status);
}

void UcxCore::on_fetched(void* request, ucs_status_t status, std::size_t size, void* user_data) {
  UcxOperation& operation = *static_cast<UcxOperation*>(user_data);
  operation.core->ucp_.request_free(request);
  operation.core->end(operation, status == UCS_OK && size != operation.bytes ? UCS_ERR_MESSAGE_TRUNCATED : status);
}

void UcxCore::begin(UcxEndpoint* endpoint, UcxOperation& operation) noexcept {
  ++with_ucx_;
  if (endpoint == nullptr) return;
  operation.endpoint = endpoint;
  ++endpoint->with_ucx;
}

void UcxCore::leave(UcxOperation& operation) noexcept {
  --with_ucx_;
  UcxEndpoint* const endpoint = std::exchange(operation.endpoint, nullptr);
  if (endpoint != nullptr && --endpoint->with_ucx == 0 && endpoint->token == 0) any_closed_ = true;
}

void UcxCore::end(UcxOperation& operation, ucs_status_t status) noexcept {
  leave(operation);
  operations_.add_ended(operation, status);
}

// ---- Data on loan ----

Block* UcxCore::loan(void* data) {
  if (free_data_ == nullptr) {
    all_data_.push_back(std::make_unique<Data>(*this));
    free_data_ = all_data_.back().get();
  }
  Data* const block = std::exchange(free_data_, free_data_->next);
  block->data = data;
  block->loan();
  ++loaned_;
  return block;
}

void UcxCore::reclaim(Data& data) noexcept {
  release(std::exchange(data.data, nullptr));
  data.next = std::exchange(free_data_, &data);
  --loaned_;
}

void UcxCore::Data::returned(ExternalBlock& block) noexcept {
  Data& data = static_cast<Data&>(block);
  UcxCore& core = data.core_;
  if (!core.abandoned_.load(std::memory_order_acquire) && Loop::current() == core.loop_) return core.reclaim(data);
  bool last = false;
  {
    const std::lock_guard lock(core.mutex_);
    if (core.abandoned_.load(std::memory_order_relaxed)) {
      core.reclaim(data);
      last = !core.lingering_ && core.loaned_ == 0;
    } else {
      data.next = std::exchange(core.returned_, &data);
      core.any_returned_.store(true, std::memory_order_relaxed);
    }
  }
  if (last) delete &core;
}

void UcxCore::reclaim_returned() noexcept {
  if (!any_returned_.load(std::memory_order_relaxed)) return;
  Data* returned = nullptr;
  {
    const std::lock_guard lock(mutex_);
    any_returned_.store(false, std::memory_order_relaxed);
    returned = std::exchange(returned_, nullptr);
  }
  while (returned != nullptr) reclaim(*std::exchange(returned, returned->next));
}

// ---- Endpoints ----

Result<std::unique_ptr<UcxEndpoint>> UcxCore::connect(ucp_ep_params_t& params, std::uint64_t token) {
  drop_closed();
  auto endpoint = std::make_unique<UcxEndpoint>();
  endpoint->core = this;
  endpoint->token = token;
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode =
      context_->options().error_mode == UcxErrorMode::peer ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler = {.cb = &UcxCore::on_failed, .arg = endpoint.get()};
  if (const ucs_status_t status = ucp_.ep_create(worker_, &params, &endpoint->ep); status != UCS_OK) {
    std::string what = "making a UCX endpoint";
    if (status == UCS_ERR_UNREACHABLE) {
      what += " (no transport of UcxOptions::tls leads there";
      if (context_->options().error_mode == UcxErrorMode::peer) what += "; UCX's shared memory lacks error_mode peer";
      what += ")";
    }
    return fail(ucx_error(ucp_, what, status));
  }
  return endpoint;
}

void UcxCore::on_failed(void* arg, ucp_ep_h, ucs_status_t status) {
  UcxEndpoint& endpoint = *static_cast<UcxEndpoint*>(arg);
  endpoint.failed = status;
  if (endpoint.token != 0) endpoint.core->failed_.push_back(endpoint.token);
  if (endpoint.waiting) endpoint.core->any_closed_ = true;
}

void UcxCore::close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept {
  endpoint->token = 0;
  const bool may_cut = context_->options().error_mode == UcxErrorMode::peer;
  if (may_cut && how != UcxClose::cut && endpoint->failed == UCS_OK) {
    endpoint->for_operations = how == UcxClose::flush_peer_gone;
    if (!endpoint->for_operations || endpoint->with_ucx != 0) endpoint->until = loop_->now() + wait_max;
    ucp_request_param_t params;
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    params.cb.send = &UcxCore::on_flushed;
    params.user_data = endpoint.get();
    const ucs_status_ptr_t flushing = ucp_.ep_flush_nbx(endpoint->ep, &params);
    endpoint->flushing = UCS_PTR_IS_PTR(flushing);
    if (endpoint->flushing) endpoint->closing = flushing;
    // UCX does not end the flush of a wire-up that the peer does not answer.
    if (how == UcxClose::flush_peer_gone) endpoint->flush_until = loop_->now() + wait_max;
    if (how == UcxClose::flush && !endpoint->heard) {
      endpoint->flush_until = loop_->after(context_->options().wire_up_timeout);
    }
  }
  endpoint->draining = !may_cut && endpoint->with_ucx != 0;
  if (endpoint->draining) {
    endpoint->until = loop_->now() + wait_max;
  } else if (!endpoint->flushing) {
    flushed(*endpoint);
  }
  closing_.push_back(std::move(endpoint));
  drop_closed();
}

void UcxCore::flushed(UcxEndpoint& endpoint) noexcept {
  endpoint.waiting = endpoint.until != Time{} && endpoint.failed == UCS_OK;
  if (!endpoint.waiting) end_endpoint(endpoint);
}

Time UcxCore::end_waiting(Time now) noexcept {
  Time next = Time::max();
  for (const std::unique_ptr<UcxEndpoint>& endpoint : closing_) {
    if (endpoint->flushing && !endpoint->flushed && endpoint->flush_until != Time{}) {
      if (now < endpoint->flush_until) {
        next = std::min(next, endpoint->flush_until);
        continue;
      }
      endpoint->flushing = false;
      endpoint->until = Time{};
      end_endpoint(*endpoint);
      continue;
    }
    if (endpoint->until == Time{}) continue;
    if (now < endpoint->until) {
      next = std::min(next, endpoint->until);
      continue;
    }
    endpoint->until = Time{};
    if (endpoint->draining && endpoint->kept != nullptr) loop_->post([kept = std::move(endpoint->kept)] {});
    if (std::exchange(endpoint->waiting, false)) end_endpoint(*endpoint);
  }
  drop_closed();
  return next;
}

// UCX keeps an endpoint to which the peer has connected, with all its resources, unless it is closed by force. Closing
// by force needs UcxErrorMode::peer.
void UcxCore::end_endpoint(UcxEndpoint& endpoint) noexcept {
  const bool force = context_->options().error_mode == UcxErrorMode::peer;
  ucp_request_param_t params;
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = force ? std::uint32_t{UCP_EP_CLOSE_FLAG_FORCE} : 0;
  params.cb.send = &UcxCore::on_closed;
  params.user_data = &endpoint;
  if (!force) ++spent_;
  const ucs_status_ptr_t closed = ucp_.ep_close_nbx(endpoint.ep, &params);
  if (UCS_PTR_IS_PTR(closed)) {
    endpoint.closing = closed;
  } else {
    endpoint.ep = nullptr;
  }
}

void UcxCore::on_flushed(void* request, ucs_status_t, void* user_data) {
  UcxEndpoint& endpoint = *static_cast<UcxEndpoint*>(user_data);
  endpoint.core->ucp_.request_free(request);
  if (endpoint.closing == request) endpoint.closing = nullptr;
  endpoint.flushed = true;
  endpoint.core->any_closed_ = true;
}

void UcxCore::on_closed(void* request, ucs_status_t, void* user_data) {
  UcxEndpoint& endpoint = *static_cast<UcxEndpoint*>(user_data);
  endpoint.core->ucp_.request_free(request);
  endpoint.ep = nullptr;
  endpoint.core->any_closed_ = true;
}

void UcxCore::drop_closed() noexcept {
  any_closed_ = false;
  for (const std::unique_ptr<UcxEndpoint>& endpoint : closing_) {
    if (endpoint->flushed && std::exchange(endpoint->flushing, false)) flushed(*endpoint);
    if (endpoint->with_ucx == 0 && std::exchange(endpoint->draining, false)) end_endpoint(*endpoint);
    const bool over = endpoint->failed != UCS_OK || (endpoint->for_operations && endpoint->with_ucx == 0);
    if (over && std::exchange(endpoint->waiting, false)) end_endpoint(*endpoint);
    // The kept object is destroyed later, because it may be in the call stack.
    if ((endpoint->ep == nullptr || endpoint->waiting) && endpoint->kept != nullptr) {
      loop_->post([kept = std::move(endpoint->kept)] {});
    }
  }
  std::erase_if(closing_, [](const std::unique_ptr<UcxEndpoint>& endpoint) {
    return endpoint->ep == nullptr && endpoint->with_ucx == 0;
  });
}

}  // namespace hawser::transport
