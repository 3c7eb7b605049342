#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hawser::protocol::resp {

// Gives memory for replies. One thread.
class ReplyMemory {
 public:
  // `used` bytes of the memory that the last call returned are part of the replies. Returns memory of at least `bytes`
  // bytes behind them, and its length in `size`.
  virtual char* more(std::size_t used, std::size_t bytes, std::size_t& size) = 0;

 protected:
  ~ReplyMemory() = default;
};

// Writes replies in RESP2 or RESP3. The last bytes are part of the replies after flush().
class ReplyWriter {
 public:
  explicit ReplyWriter(ReplyMemory& memory) noexcept : memory_(memory) {}
  ReplyWriter(const ReplyWriter&) = delete;
  ReplyWriter& operator=(const ReplyWriter&) = delete;

  void set_version(int version) noexcept { resp3_ = version == 3; }
  bool resp3() const noexcept { return resp3_; }

  void raw(std::string_view text) {
    char* const to = reserve(text.size());
    if (!text.empty()) std::memcpy(to, text.data(), text.size());
    at_ = to + text.size();
  }
  void ok() { raw("+OK\r\n"); }
  void status(std::string_view text) { line('+', text); }
  // `text` begins with a code, such as "ERR".
  void error(std::string_view text) { line('-', text); }
  void number(std::int64_t value) { header(':', value); }
  void null() { raw(resp3_ ? std::string_view("_\r\n") : std::string_view("$-1\r\n")); }
  void bulk(std::string_view text) {
    constexpr std::size_t header_bytes_max = 24;
    char* to = reserve(text.size() + header_bytes_max);
    *to++ = '$';
    to = std::to_chars(to, to + 21, text.size()).ptr;
    *to++ = '\r';
    *to++ = '\n';
    if (!text.empty()) std::memcpy(to, text.data(), text.size());
    to += text.size();
    *to++ = '\r';
    *to++ = '\n';
    at_ = to;
  }
  void verbatim(std::string_view text) {
    if (!resp3_) return bulk(text);
    header('=', static_cast<std::int64_t>(text.size() + 4));
    raw("txt:");
    raw(text);
    raw("\r\n");
  }
  void array(std::size_t size) { header('*', static_cast<std::int64_t>(size)); }
  void set(std::size_t size) { header(resp3_ ? '~' : '*', static_cast<std::int64_t>(size)); }
  // RESP3: a message that is not a reply. Its elements follow.
  void push(std::size_t size) { header('>', static_cast<std::int64_t>(size)); }
  // Keys and values follow one after the other.
  void map(std::size_t pairs) { header(resp3_ ? '%' : '*', static_cast<std::int64_t>(resp3_ ? pairs : 2 * pairs)); }

  void flush() {
    if (at_ == begin_) return;
    std::size_t size = 0;
    begin_ = at_ = memory_.more(static_cast<std::size_t>(at_ - begin_), 0, size);
    end_ = begin_ + size;
  }
  // Forgets the memory: what it was is not valid any more.
  void detach() noexcept { begin_ = at_ = end_ = nullptr; }
  // Bytes that flush() would hand on.
  std::size_t unflushed() const noexcept { return static_cast<std::size_t>(at_ - begin_); }

 private:
  char* reserve(std::size_t bytes) {
    if (static_cast<std::size_t>(end_ - at_) < bytes) [[unlikely]] {
      std::size_t size = 0;
      begin_ = at_ = memory_.more(static_cast<std::size_t>(at_ - begin_), bytes, size);
      end_ = begin_ + size;
    }
    return at_;
  }
  void header(char type, std::int64_t value) {
    char* to = reserve(24);
    *to++ = type;
    to = std::to_chars(to, to + 21, value).ptr;
    *to++ = '\r';
    *to++ = '\n';
    at_ = to;
  }
  // Line ends within the text become spaces.
  void line(char type, std::string_view text) {
    char* to = reserve(text.size() + 3);
    *to++ = type;
    for (const char c : text) *to++ = c == '\r' || c == '\n' ? ' ' : c;
    *to++ = '\r';
    *to++ = '\n';
    at_ = to;
  }

  ReplyMemory& memory_;
  char* begin_ = nullptr;
  char* at_ = nullptr;
  char* end_ = nullptr;
  bool resp3_ = false;
};

}  // namespace hawser::protocol::resp
