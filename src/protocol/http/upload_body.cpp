#include "protocol/http/upload_body.h"

#include <string>

#include "base/decimal_text.h"

namespace hawser::protocol::http {

std::optional<Error> UploadBody::misuse(std::size_t bytes, bool last) const {
  if (done_ && bytes != 0) return Error::of_call(ErrorCode::invalid_argument, "the body is complete");
  if (done_ || chunked() || (bytes <= left_ && (!last || bytes == left_))) return std::nullopt;
  return Error::of_call(ErrorCode::invalid_argument, "HttpUpload::length is " + std::to_string(*length_) +
                                                         ", which leaves " + count_text(left_, "byte") +
                                                         ", and the body has " + std::to_string(bytes) +
                                                         (last ? " more" : " more at least"));
}

}  // namespace hawser::protocol::http
