#pragma once

#include <nghttp2/nghttp2.h>

#include <array>
#include <cstdint>

#include "protocol/grpc/machine.h"

namespace hawser::protocol::grpc {

// The functions that nghttp2 calls. `user` is the machine. No exception leaves them.
struct Http2Machine::Callbacks {
  // The payload of the PING behind the first step of GOAWAY. Others, which test the connection, have zeros.
  static constexpr std::array<std::uint8_t, 8> goaway_ping = {'g', 'o', ' ', 'a', 'w', 'a', 'y', '.'};

  static nghttp2_session* make_session(Http2Machine& machine);
  static nghttp2_data_provider provider(Http2Stream& stream) noexcept;

  static int on_begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_bytes,
                       const std::uint8_t* value, std::size_t value_bytes, std::uint8_t flags, void* user);
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int error, void* user);
  static int on_data(nghttp2_session*, std::uint8_t flags, std::int32_t id, const std::uint8_t* data, std::size_t bytes,
                     void* user);
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user);
  static int on_sent_frame(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static int on_unsent_frame(nghttp2_session*, const nghttp2_frame* frame, int error, void* user);
  static int send_data(nghttp2_session*, nghttp2_frame* frame, const std::uint8_t* header, std::size_t bytes,
                       nghttp2_data_source* source, void* user);
  static ssize_t read(nghttp2_session*, std::int32_t id, std::uint8_t* memory, std::size_t bytes, std::uint32_t* flags,
                      nghttp2_data_source* source, void* user);
  static ssize_t read_length(nghttp2_session*, std::uint8_t kind, std::int32_t id, std::int32_t connection_window,
                             std::int32_t stream_window, std::uint32_t frame_bytes_max, void* user);

 private:
  static Http2Stream* stream_of(nghttp2_session* session, std::int32_t id) noexcept;
  static void end_request(Http2Machine& machine, nghttp2_session* session, const nghttp2_frame* frame);
  static int headers_done(Http2Machine& machine, const nghttp2_frame* frame);
  template <class Work>
  static int guarded(Http2Machine& machine, Work work) noexcept;
};

}  // namespace hawser::protocol::grpc
