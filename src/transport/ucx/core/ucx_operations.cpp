#include "transport/ucx/core/ucx_operations.h"

namespace hawser::transport {

UcxOperation* UcxOperations::acquire(UcxCore& core, UcxTarget& target, UcxOperation::Kind kind) {
  if (free_ == nullptr) {
    all_.push_back(std::make_unique<UcxOperation>());
    all_.back()->core = &core;
    free_ = all_.back().get();
  }
  UcxOperation* const operation = std::exchange(free_, free_->next);
  operation->next = nullptr;
  operation->target = &target;
  operation->kind = kind;
  operation->done = false;
  return operation;
}

void UcxOperations::recycle(UcxOperation& operation) noexcept {
  if (operation.kind == UcxOperation::Kind::fetch && operation.done && operation.status != UCS_OK) {
    doubtful_bytes_ += operation.block->size();
    operation.target = nullptr;
    return;  // release_blocks() releases the block.
  }
  if (operation.block != nullptr) std::exchange(operation.block, nullptr)->release();
  operation.target = nullptr;
  operation.owner = nullptr;
  operation.tag = nullptr;
  operation.counted = 0;
  operation.next = std::exchange(free_, &operation);
}

void UcxOperations::release_blocks() noexcept {
  for (const std::unique_ptr<UcxOperation>& operation : all_) {
    if (operation->block != nullptr) operation->block->release();
  }
}

void UcxOperations::add_ended(UcxOperation& operation, ucs_status_t status) noexcept {
  operation.done = true;
  operation.status = status;
  operation.next = nullptr;
  (ended_last_ == nullptr ? ended_first_ : ended_last_->next) = &operation;
  ended_last_ = &operation;
}

}  // namespace hawser::transport
