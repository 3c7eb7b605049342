#include "kv/glob.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hawser::kv {
namespace {

// Matches the class that begins at pattern[at], the '[', against `c`. Moves `at` to its last character. Adds the
// characters that it read to `steps`.
bool matches_class(std::string_view pattern, std::size_t& at, char c, std::uint64_t& steps) noexcept {
  const std::size_t begin = at++;
  const bool negated = at < pattern.size() && pattern[at] == '^';
  if (negated) ++at;
  bool found = false;
  for (;; ++at) {
    if (at < pattern.size() && pattern[at] == '\\' && at + 1 < pattern.size()) {
      ++at;
      found |= pattern[at] == c;
    } else if (at >= pattern.size()) {
      at = pattern.size() - 1;
      break;
    } else if (pattern[at] == ']') {
      break;
    } else if (at + 2 < pattern.size() && pattern[at + 1] == '-') {
      const auto [low, high] = std::minmax(pattern[at], pattern[at + 2]);
      found |= c >= low && c <= high;
      at += 2;
    } else {
      found |= pattern[at] == c;
    }
  }
  steps += at - begin;
  return found != negated;
}

}  // namespace

bool matches_glob(std::string_view pattern, std::string_view text, std::uint64_t& steps) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  // The last star and the text that it was tried with: only the last one must be tried again.
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    ++steps;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    bool matched = false;
    std::size_t next = p;
    if (p < pattern.size()) {
      if (pattern[p] == '?') {
        matched = true;
      } else if (pattern[p] == '[') {
        matched = matches_class(pattern, next, text[t], steps);
      } else {
        if (pattern[p] == '\\' && p + 1 < pattern.size()) ++next;
        matched = pattern[next] == text[t];
      }
    }
    if (matched) {
      p = next + 1;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace hawser::kv
