#pragma once

#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/raw_peer.h"

namespace hawser::testing_tools {

// A client of HTTP/2 on nghttp2, for one thread.
class Http2Client {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  struct Response {
    int status = 0;
    std::vector<int> interim;
    std::map<std::string, std::string> fields;
    std::string body;
    bool ended = false;   // The server has ended its direction.
    bool closed = false;  // `code` is the reason.
    std::uint32_t code = 0;
    bool has(const std::string& name, std::string_view value) const {
      const auto found = fields.find(name);
      return found != fields.end() && found->second == value;
    }
  };

  // `window`: SETTINGS_INITIAL_WINDOW_SIZE.
  explicit Http2Client(const std::string& address, std::uint32_t window = 65'535)
      : socket_(RawSocket::connected_to(address)) {
    const int on = 1;  // Otherwise WINDOW_UPDATEs wait for the acknowledgement of earlier ones.
    setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &on_close);
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry setting{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, &setting, 1);
  }
  Http2Client(const Http2Client&) = delete;
  Http2Client& operator=(const Http2Client&) = delete;
  ~Http2Client() { nghttp2_session_del(session_); }

  // Begins a request. `parts`: the payloads of its DATA frames; `end`: the last one ends the stream.
  std::int32_t begin(const std::string& method, const std::string& path, const Fields& fields = {},
                     std::vector<std::string> parts = {}, bool end = true) {
    Fields all = {{":method", method}, {":scheme", "http"}, {":authority", "test"}, {":path", path}};
    all.insert(all.end(), fields.begin(), fields.end());
    std::vector<nghttp2_nv> block;
    for (const auto& [name, value] : all) {
      block.push_back({raw(name), raw(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
    }
    Body& body = bodies_.emplace_back(Body{std::move(parts), 0, end});
    nghttp2_data_provider provider{};
    provider.source.ptr = &body;
    provider.read_callback = &read;
    const bool bare = body.parts.empty() && end;
    const std::int32_t id =
        nghttp2_submit_request(session_, nullptr, block.data(), block.size(), bare ? nullptr : &provider, nullptr);
    flush();
    return id;
  }
  // Begins a request and waits until it has ended.
  Response ask(const std::string& method, const std::string& path, const Fields& fields = {},
               std::vector<std::string> parts = {}) {
    const std::int32_t id = begin(method, path, fields, std::move(parts));
    EXPECT_TRUE(until([&] { return responses[id].closed; })) << method << " " << path;
    return responses[id];
  }
  Response post(const std::string& path, const std::string& body, const Fields& fields = {}) {
    return ask("POST", path, fields, {body});
  }
  void reset(std::int32_t id) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    flush();
  }
  // Permits so many bytes more of the response.
  void open_window(std::int32_t id, std::int32_t bytes) {
    nghttp2_submit_window_update(session_, NGHTTP2_FLAG_NONE, id, bytes);
    flush();
  }
  // Exchanges bytes with the server until `condition` holds. False if the connection ends before, sends nothing for
  // `patience`, or has taken ten times as long: a slow machine needs long for many bytes.
  template <class Condition>
  bool until(Condition condition) {
    const auto begun = std::chrono::steady_clock::now();
    auto heard = begun;
    while (!condition()) {
      flush();
      const auto now = std::chrono::steady_clock::now();
      if (now > heard + patience || now > begun + 10 * patience) return false;
      pollfd one{socket_.fd(), POLLIN, 0};
      if (::poll(&one, 1, 10) <= 0) continue;
      std::uint8_t scrap[16'384];
      const ssize_t size = ::recv(socket_.fd(), scrap, sizeof scrap, MSG_DONTWAIT);
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (size <= 0) {
        ended = true;
        return condition();
      }
      if (nghttp2_session_mem_recv(session_, scrap, static_cast<std::size_t>(size)) < 0) return condition();
      heard = now;
    }
    return true;
  }
  void flush() {
    for (;;) {
      const std::uint8_t* data = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size <= 0) return;
      sent_bytes += static_cast<std::size_t>(size);
      socket_.send(Bytes(reinterpret_cast<const std::byte*>(data), static_cast<std::size_t>(size)));
    }
  }
  RawSocket& socket() { return socket_; }

  std::map<std::int32_t, Response> responses;
  std::size_t sent_bytes = 0;
  bool goaway = false;
  int goaways = 0;
  bool ended = false;  // The server has ended the connection.

 private:
  struct Body {
    std::vector<std::string> parts;
    std::size_t next = 0;
    bool end = true;
  };
  static std::uint8_t* raw(const std::string& text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_bytes,
                       const std::uint8_t* value, std::size_t value_bytes, std::uint8_t, void* user) {
    Response& response = static_cast<Http2Client*>(user)->responses[frame->hd.stream_id];
    const std::string key(reinterpret_cast<const char*>(name), name_bytes);
    const std::string text(reinterpret_cast<const char*>(value), value_bytes);
    if (key == ":status") {
      if (text.starts_with('1')) {
        response.interim.push_back(std::stoi(text));
      } else {
        response.status = std::stoi(text);
      }
    }
    response.fields[key] += text;
    return 0;
  }
  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data, std::size_t bytes,
                     void* user) {
    static_cast<Http2Client*>(user)->responses[id].body.append(reinterpret_cast<const char*>(data), bytes);
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Client& client = *static_cast<Http2Client*>(user);
    if (frame->hd.type == NGHTTP2_GOAWAY) {
      client.goaway = true;
      ++client.goaways;
    }
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (end && (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS)) {
      client.responses[frame->hd.stream_id].ended = true;
    }
    return 0;
  }
  static int on_close(nghttp2_session*, std::int32_t id, std::uint32_t code, void* user) {
    Response& response = static_cast<Http2Client*>(user)->responses[id];
    response.closed = true;
    response.code = code;
    return 0;
  }
  static ssize_t read(nghttp2_session*, std::int32_t, std::uint8_t* memory, std::size_t bytes, std::uint32_t* flags,
                      nghttp2_data_source* source, void*) {
    Body& body = *static_cast<Body*>(source->ptr);
    if (body.next == body.parts.size() && !body.end) return NGHTTP2_ERR_DEFERRED;
    std::size_t size = 0;
    if (body.next < body.parts.size()) {
      std::string& part = body.parts[body.next];
      size = std::min(bytes, part.size());
      std::memcpy(memory, part.data(), size);
      part.erase(0, size);
      if (part.empty()) ++body.next;
    }
    if (body.next == body.parts.size() && body.end) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(size);
  }

  RawSocket socket_;
  nghttp2_session* session_ = nullptr;
  std::deque<Body> bodies_;
};

}  // namespace hawser::testing_tools
