#include <algorithm>
#include <utility>

#include "observe/page_state.h"

namespace hawser::observe {
namespace {

PageCell cell_of(const ApplicationPage::Value& value) {
  if (const auto* const amount = std::get_if<std::uint64_t>(&value)) return number(*amount);
  return std::get<std::string>(value);
}

}  // namespace

Document application_page(const ApplicationPage& page, const HttpRequest& request) {
  PageTable table{.key = "rows", .title = {}, .columns = {}};
  for (const std::string& name : page.columns) {
    std::string title = name;
    std::ranges::replace(title, '_', ' ');
    table.columns.push_back({.key = name, .title = harmless(title)});
  }
  for (const auto& values : page.rows(request)) {
    std::vector<PageCell>& row = table.rows.emplace_back();
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      row.push_back(i < values.size() ? cell_of(values[i]) : PageCell());
      if (!row.back().json.empty()) table.columns[i].number = true;
    }
  }
  Document document{.path = page.path, .title = harmless(page.title)};
  document.tables.push_back(std::move(table));
  return document;
}

}  // namespace hawser::observe
