#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/time.h"

namespace hawser::observe {

// One value of a table. Texts may come from peers: they are made harmless when they are rendered, and only there.
struct PageCell {
  PageCell() = default;
  PageCell(std::string shown) : text(std::move(shown)) {}
  PageCell(std::string_view shown) : text(shown) {}
  PageCell(const char* shown) : text(shown) {}

  std::string text;
  std::string json = {};  // The value as a JSON number or literal; empty: the text.
  std::string link = {};  // Path and query of a page, percent-encoded.
  // A button that sends POST to `link` instead of a link.
  bool button = false;
  std::string label = {};  // With `button`: its text, if that is not `text`.
  // With `button`: a field of the form, named "value", with this text.
  std::optional<std::string> field = {};
  bool alarm = false;              // Shown as a problem.
  std::vector<double> trend = {};  // Drawn as a line.
};

PageCell number(std::uint64_t value);
PageCell decimal(double value);          // Three significant digits.
PageCell bytes_cell(double value);       // With a unit for people, exact in JSON.
PageCell duration_cell(double seconds);  // Likewise.
inline PageCell duration_cell(Duration time) { return duration_cell(std::chrono::duration<double>(time).count()); }
PageCell boolean(bool value);

struct Column {
  std::string key;  // In JSON.
  std::string title;
  bool number = false;  // Aligned to the right.
};

struct PageTable {
  std::string key;  // In JSON.
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<PageCell>> rows = {};
  bool facts = false;     // Two columns: name and value. An object in JSON.
  std::string note = {};  // Below the table.
  std::string next = {};  // Path and query of the next part.
};

// A page, before it is rendered as text, JSON or HTML.
struct Document {
  std::string path;
  std::string title;
  std::vector<PageTable> tables = {};
  bool updates = true;      // The page in a browser updates itself.
  bool asks_token = false;  // The forms have a field for the token of the server.
  std::string query = {};   // The query of the request without `format`, for links to the other formats.
  std::string figure = {};  // An SVG element of our own before the tables, in HTML.
  // Links at the end of the page in HTML.
  std::string formats_title = "The same as";
  std::vector<std::string> formats = {"text", "json"};
};

// Valid UTF-8 without control characters, cut at `bytes_max`.
std::string harmless(std::string_view text, std::size_t bytes_max = 512);
// As harmless(), for text or an attribute of HTML or XML.
std::string markup(std::string_view text, std::size_t bytes_max = 512);
// Percent-encodes a value of a query.
std::string query_value(std::string_view text);
// The decoded value of `name` in a query, or an empty text.
std::string query_of(std::string_view query, std::string_view name);

std::string render_text(const Document& document);
std::string render_json(const Document& document);
// `nonce` is allowed by the Content-Security-Policy.
std::string render_html(const Document& document, std::string_view program, std::string_view nonce);

// Every page, in the order of the navigation.
struct PageName {
  std::string_view path;
  std::string_view title;
  std::string_view about;
};
const std::vector<PageName>& page_names();

}  // namespace hawser::observe
