#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/grpc/machine.h"
#include "wire/metadata.h"

// Two machines whose bytes the test carries between them.
namespace hawser::protocol::grpc::testing {

inline std::string text_of(Bytes bytes) { return std::string(as_text(bytes)); }

// A message with its prefix.
inline Buffer framed(std::string_view message, bool compressed = false) {
  Buffer buffer = Buffer::allocate(MessageReader::prefix_bytes + message.size());
  std::byte* const to = buffer.mutable_data();
  to[0] = compressed ? std::byte{1} : std::byte{0};
  for (unsigned i = 0; i < 4; ++i) to[1 + i] = static_cast<std::byte>(message.size() >> (24 - 8 * i));
  if (!message.empty()) std::memcpy(to + MessageReader::prefix_bytes, message.data(), message.size());
  return buffer;
}

// Removes all bytes of the output and returns them.
inline std::string take_output(GrpcMachine& machine, pipe::SendQueue& output) {
  std::string bytes;
  while (true) {
    machine.pump();
    if (output.empty()) return bytes;
    std::array<ConstBuffer, 16> pieces;
    const std::size_t count = output.peek(pieces);
    std::size_t size = 0;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.append(as_text(Bytes(pieces[i].data, pieces[i].size)));
      size += pieces[i].size;
    }
    output.consume(size);
  }
}

inline std::string metadata_text(const GrpcStream& stream) {
  std::string out;
  wire::MetadataReader reader(Bytes(stream.fields.metadata.data(), stream.fields.metadata.size()));
  std::string_view key;
  std::string_view value;
  while (reader.next(key, value)) out += " " + std::string(key) + "=" + std::string(value);
  return out;
}

// Writes down the events of a server. Paths that begin with /unary keep one message and are answered with it; other
// messages are delivered, and answered one by one unless `silent`.
class ServerLog : public MachineSink {
 public:
  explicit ServerLog(const MachineOptions& options = {}, detail::ReceiveAccount* account = nullptr)
      : machine(options, *this, account, output) {}

  void on_headers(GrpcStream& stream) override {
    log("headers " + stream.fields.path + (stream.fields.grpc_content ? "" : " not-grpc") +
            (stream.fields.too_large ? " too-large" : "") + (stream.fields.bad_metadata ? " bad-metadata" : "") +
            (stream.fields.timeout ? " timeout=" + std::to_string(stream.fields.timeout->count()) : "") +
            metadata_text(stream),
        stream);
    if (hold) stream.busy = true;
    stream.take = stream.fields.path.starts_with("/unary") ? GrpcStream::Take::keep_one : GrpcStream::Take::deliver;
  }
  void on_message(GrpcStream& stream, Bytes message, Block*) override {
    log("message " + text_of(message), stream);
    stream.held_bytes += message.size() + 64;
    if (!silent) {
      machine.send_message(stream, framed(as_text(message)), {}, nullptr, 1);
      machine.release(stream, message.size() + 64);
    }
  }
  void on_end(GrpcStream& stream) override {
    if (stream.take == GrpcStream::Take::keep_one) {
      log("end with " + std::to_string(stream.messages) + " " + text_of(stream.message), stream);
      if (!silent && stream.messages == 1) {
        machine.send_message(stream, framed(as_text(stream.message)), {}, nullptr, 1);
      }
    } else {
      log("end", stream);
    }
    if (!silent) machine.send_status(stream, 0, "");
  }
  void on_bad(GrpcStream& stream, const Error& why) override {
    log("bad " + std::string(to_string(why.code)), stream);
    machine.send_status(stream, 13, why.text);
  }
  void on_closed(GrpcStream& stream, std::uint32_t code) override { log("closed " + std::to_string(code), stream); }
  void on_sent(GrpcStream&, std::uint32_t credit) override { sent += credit; }
  void on_goaway(std::int32_t, std::uint32_t, std::string_view) override {}
  void on_pong(bool of_goaway) override {
    ++pongs;
    goaway_pongs += of_goaway ? 1 : 0;
  }

  // Feeds bytes from memory that is overwritten afterwards, as a receive buffer is.
  Result<void> feed(std::string_view bytes, Time now = {}) {
    std::string copy(bytes);
    Result<void> status = machine.receive(as_bytes(copy), nullptr, now);
    std::fill(copy.begin(), copy.end(), '#');
    return status;
  }

  bool silent = false;
  bool hold = false;  // The session uses each stream until the test releases it.
  std::uint64_t sent = 0;
  unsigned pongs = 0;
  unsigned goaway_pongs = 0;
  // Events by HTTP/2 stream id, because the order between streams does not matter.
  std::map<std::int32_t, std::vector<std::string>> events;
  pipe::SendQueue output;  // Outlives the machine.
  GrpcMachine machine;

 private:
  void log(std::string text, const GrpcStream& stream) { events[stream.id].push_back(std::move(text)); }
};

class ClientLog : public MachineSink {
 public:
  explicit ClientLog(MachineOptions options = {}) : machine(client(options), *this, nullptr, output) {}
  static MachineOptions client(MachineOptions options) {
    options.connection.server = false;
    return options;
  }

  void on_headers(GrpcStream& stream) override { stream.take = GrpcStream::Take::deliver; }
  void on_message(GrpcStream& stream, Bytes message, Block*) override {
    messages[stream.id].push_back(text_of(message));
    stream.held_bytes += message.size() + 64;
    machine.release(stream, message.size() + 64);
  }
  void on_end(GrpcStream& stream) override { status[stream.id] = stream.fields; }
  void on_bad(GrpcStream& stream, const Error& why) override { bad[stream.id] = why; }
  void on_closed(GrpcStream& stream, std::uint32_t code) override { closed[stream.id] = code; }
  void on_sent(GrpcStream&, std::uint32_t credit) override { sent += credit; }
  void on_goaway(std::int32_t last, std::uint32_t code, std::string_view text) override {
    goaways.push_back(std::to_string(last) + " " + std::to_string(code) + " " + std::string(text));
  }
  void on_pong(bool) override {}

  GrpcStream& begin(std::string_view path, std::vector<GrpcMachine::Field> more = {}) {
    std::vector<GrpcMachine::Field> fields = {{":method", "POST"}, {":scheme", "http"},
                                              {":path", path},     {":authority", "test"},
                                              {"te", "trailers"},  {"content-type", "application/grpc"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return *machine.begin_request(fields);
  }
  void call(std::string_view path, std::string_view message, std::vector<GrpcMachine::Field> more = {}) {
    GrpcStream& stream = begin(path, std::move(more));
    machine.send_message(stream, framed(message), {}, nullptr, 1);
    machine.send_end(stream);
  }
  Result<void> feed(std::string_view bytes) { return machine.receive(as_bytes(bytes), nullptr, {}); }

  std::uint64_t sent = 0;
  std::map<std::int32_t, std::vector<std::string>> messages;
  std::map<std::int32_t, HeaderFields> status;
  std::map<std::int32_t, Error> bad;
  std::map<std::int32_t, std::uint32_t> closed;
  std::vector<std::string> goaways;
  pipe::SendQueue output;  // Outlives the machine.
  GrpcMachine machine;
};

// Carries bytes until both are quiet. Returns what the client sent.
inline std::string exchange(ClientLog& client, ServerLog& server) {
  std::string sent;
  while (true) {
    const std::string up = take_output(client.machine, client.output);
    if (!up.empty() && !server.machine.failure()) static_cast<void>(server.feed(up));
    sent += up;
    const std::string down = take_output(server.machine, server.output);
    if (!down.empty()) static_cast<void>(client.feed(down));
    if (up.empty() && down.empty()) return sent;
  }
}

// Frames of HTTP/2, for peers that nghttp2 would not be.
inline std::string frame(std::uint8_t kind, std::uint8_t flags, std::uint32_t stream, std::string_view payload) {
  std::string out;
  for (unsigned i = 0; i < 3; ++i) out += static_cast<char>(payload.size() >> (16 - 8 * i));
  out += static_cast<char>(kind);
  out += static_cast<char>(flags);
  for (unsigned i = 0; i < 4; ++i) out += static_cast<char>(stream >> (24 - 8 * i));
  return out + std::string(payload);
}
inline constexpr std::string_view preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// The preface and SETTINGS of a client.
inline std::string hello() { return std::string(preface) + frame(4, 0, 0, {}) + frame(4, 1, 0, {}); }
// Literal fields without indexing.
inline std::string hpack(std::vector<GrpcMachine::Field> fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    out += '\0';
    out += static_cast<char>(name.size());
    out += name;
    out += static_cast<char>(value.size());
    out += value;
  }
  return out;
}
inline std::string request_fields(std::string_view path) {
  return hpack({{":method", "POST"},
                {":scheme", "http"},
                {":path", path},
                {":authority", "test"},
                {"te", "trailers"},
                {"content-type", "application/grpc"}});
}

}  // namespace hawser::protocol::grpc::testing
