#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/error.h"

// The file format of the append-only log (docs/kv.md, "The log").
namespace hawser::kv {

enum class LogKind : std::uint8_t {
  set = 1,
  expiry = 2,
  remove = 3,
  clear = 4,
  synced = 5,  // All bytes of the file before this record, which begins at `offset`, were on the disk before it.
};

struct EffectRecord {
  LogKind kind = LogKind::clear;
  std::string_view key = {};
  std::string_view value = {};  // set
  std::int64_t expires_at = 0;  // set, expiry: milliseconds since 1970; 0: never.
  std::uint64_t version = 0;    // set
  std::uint64_t offset = 0;     // synced
  std::uint64_t file = 0;       // synced: LogHeader::file
};

// Numbers that begin at random and grow by one show which of two was given later. Numbers of which none follows the
// other within 2^32 have nothing to do with each other.
constexpr bool follows(std::uint64_t later, std::uint64_t earlier) noexcept {
  return later != earlier && later - earlier < std::uint64_t{1} << 32;
}

// The header of a file.
struct LogHeader {
  // The identity of the log: random, the same in the files of all shards, and another one in each run. The first number
  // follows that of the run before.
  std::uint64_t log_first = 0;
  std::uint64_t log_second = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
  // This file alone has it: random in the first file of a shard in a run, and one more in each later one. Records of
  // kind `synced` repeat it, so that no value can contain one.
  std::uint64_t file = 0;

  bool same_log(const LogHeader& other) const noexcept {
    return log_first == other.log_first && log_second == other.log_second && shards == other.shards;
  }
};

// Its bytes, with which each file begins.
std::string log_header(const LogHeader& header);
constexpr std::size_t log_header_bytes = 52;
void append_record(std::string& out, const EffectRecord& record);
// `offset` is where the record will be in the file.
std::string synced_record(const LogHeader& header, std::uint64_t offset);

// Reads a file. An incomplete or damaged record is the tail that a crash has left, unless a record of kind `synced`
// shows that it had been on the disk: then the file is damaged. The same holds if a record of kind `synced` is not
// where it was written: bytes were inserted or removed. `bytes` outlive the reader and its records.
class LogReader {
 public:
  explicit LogReader(std::string_view bytes) noexcept : bytes_(bytes) {}

  // Call it first.
  Result<LogHeader> header();
  // Empty at the end, and before a tail that is to be cut.
  Result<std::optional<EffectRecord>> next();
  // Bytes at the end that are not a complete record. Valid when next() has returned nothing.
  std::size_t cut_bytes() const noexcept { return bytes_.size() - at_; }
  // The next record begins there.
  std::size_t offset() const noexcept { return at_; }
  void skip_to(std::size_t offset) noexcept { at_ = offset; }

 private:
  std::optional<EffectRecord> record_at(std::size_t offset, std::size_t& bytes) const;
  std::optional<std::size_t> synced_behind(std::size_t offset) const;

  const std::string_view bytes_;
  std::size_t at_ = 0;
  std::uint64_t file_ = 0;  // LogHeader::file
};

}  // namespace hawser::kv
