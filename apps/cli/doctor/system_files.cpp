#include "cli/doctor/system_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <system_error>

namespace hawser::cli::doctor {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }

std::size_t digits_from(std::string_view name, std::size_t begin) {
  std::size_t end = begin;
  while (end < name.size() && digit(name[end])) ++end;
  return end - begin;
}

bool counts_before(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size()) {
    const std::size_t a_digits = digits_from(a, i);
    const std::size_t b_digits = digits_from(b, i);
    if (a_digits > 0 && b_digits > 0 && a_digits != b_digits) return a_digits < b_digits;
    if (a[i] != b[i]) return a[i] < b[i];
    ++i;
  }
  return a.size() < b.size();
}

}  // namespace

std::filesystem::path SystemFiles::resolve(std::string_view path) const {
  return root_ / std::filesystem::path(path).relative_path();
}

std::optional<std::string> SystemFiles::text(std::string_view path) const {
  std::ifstream file(resolve(path), std::ios::binary);
  if (!file) return std::nullopt;
  std::string content;
  // The kernel answers reads of some files with an error, such as EINVAL for the speed of a link that is down. An
  // iterator over the stream would throw then.
  std::array<char, 4096> part;
  do {
    file.read(part.data(), part.size());
    content.append(part.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (file.bad()) return std::nullopt;
  constexpr std::string_view blanks{" \t\r\n\0", 5};
  const std::size_t begin = content.find_first_not_of(blanks);
  if (begin == std::string::npos) return std::string();
  return content.substr(begin, content.find_last_not_of(blanks) - begin + 1);
}

std::optional<std::string> SystemFiles::raw(std::string_view path, std::size_t bytes_max) const {
  std::ifstream file(resolve(path), std::ios::binary);
  std::string content(bytes_max, '\0');
  // The file is not buffered, because a device file answers each read with the requested size.
  file.rdbuf()->pubsetbuf(nullptr, 0);
  file.read(content.data(), static_cast<std::streamsize>(bytes_max));
  if (file.gcount() <= 0) return std::nullopt;
  content.resize(static_cast<std::size_t>(file.gcount()));
  return content;
}

std::optional<std::int64_t> SystemFiles::number(std::string_view path) const {
  const std::optional<std::string> content = text(path);
  if (!content) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(content->data(), content->data() + content->size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<std::string> SystemFiles::names(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(resolve(folder), error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end(), counts_before);
  return names;
}

bool SystemFiles::exists(std::string_view path) const {
  std::error_code error;
  return std::filesystem::exists(resolve(path), error);
}

std::optional<std::string> SystemFiles::link_name(std::string_view path) const {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(resolve(path), error);
  if (error) return std::nullopt;
  return target.filename().string();
}

}  // namespace hawser::cli::doctor
