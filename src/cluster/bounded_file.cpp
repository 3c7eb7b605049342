#include "cluster/bounded_file.h"

#include <filesystem>
#include <fstream>

#include "base/try.h"

namespace hawser::cluster {

Result<std::string> read_bounded_file(const std::string& path, std::size_t bytes_max, std::string_view limit) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {  // A FIFO would block.
    return fail(ErrorCode::unavailable, "file " + path + " does not exist or is not a regular file");
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes_max + 1, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())) && !in.eof()) {
    return fail(ErrorCode::unavailable, "file " + path + " cannot be read");
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > bytes_max) {
    return fail(ErrorCode::limit_exceeded,
                "file " + path + " has more than " + std::string(limit) + " (" + std::to_string(bytes_max) + ") bytes");
  }
  return text;
}

Result<std::string> read_token_file(const std::string& path) {
  constexpr std::size_t token_bytes_max = std::size_t{64} << 10;
  TRY(std::string text, read_bounded_file(path, token_bytes_max, "the limit of a token"));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace hawser::cluster
