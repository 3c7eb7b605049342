#include "protocol/http/upload_body.h"

#include <string>

namespace hawser::protocol::http {

std::optional<Error> UploadBody::misuse(std::size_t bytes, bool last) const {
  if (done_ && bytes != 0) return Error::of_call(ErrorCode::invalid_argument, "the body is complete");
  if (done_ || chunked() || (bytes <= left_ && (!last || bytes == left_))) return std::nullopt;
  return Error::of_call(ErrorCode::invalid_argument, "HttpUpload::length is " + std::to_string(*length_) +
                                                         ", of which " + std::to_string(left_) +
                                                         " bytes are left, and the body has " + std::to_string(bytes) +
                                                         (last ? " more" : " more at least"));
}

}  // namespace hawser::protocol::http
