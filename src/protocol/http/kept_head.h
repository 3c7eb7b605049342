#pragma once

#include <utility>

#include "hawser/bytes.h"
#include "hawser/metadata.h"
#include "protocol/http/request_parser.h"

namespace hawser::protocol::http {

// A copy of a request's head with its own memory.
class KeptHead {
 public:
  KeptHead() = default;
  // `bytes` has the whole head, to which the views of `head` refer.
  KeptHead(const RequestHead& head, Bytes bytes);
  // The views of `head` refer to `bytes`.
  KeptHead(Buffer bytes, RequestHead head) noexcept : bytes_(std::move(bytes)), head_(std::move(head)) {}
  const RequestHead& operator*() const noexcept { return head_; }
  const RequestHead* operator->() const noexcept { return &head_; }
  // Removes the fields that describe the body as it was sent.
  void drop_coding();
  // Replaces all fields that are metadata, or have a key of `metadata`. The views refer to it.
  void replace_metadata(MetadataView metadata);

 private:
  Buffer bytes_;
  RequestHead head_;
};

}  // namespace hawser::protocol::http
