#include "transport/tcp/search_domains.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/try.h"
#include "os/contents_of_file.h"
#include "os/host_name.h"
#include "transport/tcp/words.h"

namespace hawser::transport {
namespace {

constexpr std::size_t dots_min_max = 15;  // RES_MAXNDOTS of the C library.

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) words.emplace_back(word);
  return words;
}

void apply_options(std::string_view options, SearchDomains& to) {
  constexpr std::string_view dots = "ndots:";
  for (std::string_view word = next_word(options); !word.empty(); word = next_word(options)) {
    if (!word.starts_with(dots)) continue;
    word.remove_prefix(dots.size());
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc{} && end == word.data() + word.size()) to.dots_min = std::min(value, dots_min_max);
  }
}

}  // namespace

SearchDomains search_domains_of(std::string_view text, const SearchVariables& variables, std::string_view host) {
  SearchDomains found;
  std::optional<std::vector<std::string>> domains;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find_first_of("#;"));
    const std::string_view keyword = next_word(line);
    std::vector<std::string> values;
    if (keyword == "search") values = words_of(line);
    if (keyword == "domain") values = words_of(next_word(line));
    if (!values.empty()) domains = std::move(values);
    if (keyword == "options") apply_options(line, found);
  }
  if (variables.local_domain != nullptr) domains = words_of(variables.local_domain);
  if (variables.res_options != nullptr) apply_options(variables.res_options, found);
  if (!domains) {
    const std::size_t dot = host.find('.');
    domains = words_of(dot == std::string_view::npos ? "" : host.substr(dot + 1));
  }
  found.domains = std::move(*domains);
  return found;
}

Result<SearchDomains> read_search_domains(const std::string& path) {
  TRY(const std::optional<std::string>&& text, contents_of_file(path));
  const SearchVariables variables{std::getenv("LOCALDOMAIN"), std::getenv("RES_OPTIONS")};
  return search_domains_of(text.value_or(""), variables, host_name());
}

}  // namespace hawser::transport
