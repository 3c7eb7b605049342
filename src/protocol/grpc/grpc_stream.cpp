#include "protocol/grpc/grpc_stream.h"

namespace hawser::protocol::grpc {

void GrpcStream::restart() noexcept {
  Http2Stream::restart();
  fields.clear();
  fields_charge.reset();
  take = Take::drop;
  reader.reset();
  messages = 0;
  message = {};
  message_block = nullptr;
  kept = {};
  kept_charge.reset();
  held_bytes = 0;
  if (!stalled.empty()) stalled = {};
  stalled_charge.reset();
  unpacking = Unpacking::no;
  end_delivered = false;
  send_encoding = Encoding::identity;
  initial.clear();
  trailers.clear();
  status.clear();
  status_text.clear();
}

}  // namespace hawser::protocol::grpc
