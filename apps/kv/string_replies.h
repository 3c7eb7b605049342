#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kv/reply_pieces.h"
#include "protocol/resp/reply_writer.h"

namespace hawser::kv {

// Replies in a string.
class StringReplies final : public protocol::resp::ReplyMemory {
 public:
  // The replies that were flushed.
  std::string& text() noexcept { return text_; }
  // Drops them. What the writer has not flushed must be empty.
  void clear() noexcept {
    text_.clear();
    used_ = 0;
  }

 private:
  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override;

  std::string text_;
  std::size_t used_ = 0;
};

// One reply that waits: in a string, and behind its first 64 KiB in pieces.
class LongReply final : public protocol::resp::ReplyMemory {
 public:
  std::string& text() noexcept { return text_.text(); }
  // Null if the text is the whole reply.
  std::unique_ptr<ReplyPieces>& pieces() noexcept { return pieces_; }
  std::size_t size() noexcept { return text_.text().size() + (pieces_ == nullptr ? 0 : pieces_->size()); }

 private:
  char* more(std::size_t used, std::size_t bytes, std::size_t& size) override;

  StringReplies text_;
  std::unique_ptr<ReplyPieces> pieces_;
};

}  // namespace hawser::kv
