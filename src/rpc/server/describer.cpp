#include "rpc/server/describer.h"

#include <algorithm>
#include <utility>

namespace hawser::rpc {
namespace {

using schema::Kind;

// Splits "... [T = app::Row, parts = <a, b>]" of Clang and "... [with T = app::Row; auto ...parts = {a, b}]" of GCC.
struct Text {
  std::string_view name;
  std::string_view parts;
};
Text split(std::string_view text) {
  const std::size_t begin = text.find("T = ");
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin + 4);
  if (text.ends_with(']')) text.remove_suffix(1);
  Text out{text, {}};
  for (const std::string_view mark : {", parts = <", "; auto ...parts = {"}) {
    const std::size_t at = text.find(mark);
    if (at == std::string_view::npos) continue;
    out = {text.substr(0, at), text.substr(at + mark.size())};
    if (!out.parts.empty()) out.parts.remove_suffix(1);
  }
  return out;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

Kind kind_of(char letter) noexcept {
  switch (letter) {
    case 'b': return Kind::boolean;
    case 'i': return Kind::signed_integer;
    case 'u': return Kind::unsigned_integer;
    case 'c': return Kind::character;
    case 'f': return Kind::floating;
    case 'S': return Kind::sequence;
    case 'A': return Kind::array;
    case 'K': return Kind::set;
    case 'M': return Kind::map;
    case 'O': return Kind::optional;
    case 'V': return Kind::variant;
    case 'D': return Kind::duration;
    case 'T': return Kind::tuple;
    case '(': return Kind::structure;
    case 'E': return Kind::evolving;
    default: return Kind::custom;
  }
}

}  // namespace

std::string type_name(std::string_view text) {
  std::string name(split(text).name);
  replace_all(name, "{anonymous}", "(anonymous)");
  replace_all(name, "(anonymous namespace)", "(anonymous)");
  replace_all(name, "std::__cxx11::", "std::");
  replace_all(name, "> >", ">>");
  return name;
}

// The address of a field ends in "::name)}" or ".name}".
std::vector<std::string> field_names(std::string_view text, std::size_t count) {
  std::string_view parts = split(text).parts;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] != '}') continue;
    std::size_t end = i;
    while (end > 0 && parts[end - 1] == ')') --end;
    std::size_t begin = end;
    while (begin > 0 && detail::is_name_character(parts[begin - 1])) --begin;
    if (begin == end || begin == 0 || (parts[begin - 1] != '.' && parts[begin - 1] != ':')) continue;
    names.emplace_back(parts.substr(begin, end - begin));
  }
  if (names.size() != count) names.clear();
  return names;
}

std::vector<std::string> enumerator_names(std::string_view text) {
  std::string_view parts = split(text).parts;
  std::vector<std::string> names;
  std::size_t depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= parts.size(); ++i) {
    const char c = i == parts.size() ? ',' : parts[i];
    if (c == '<' || c == '(' || c == '{') ++depth;
    if ((c == '>' || c == ')' || c == '}') && depth > 0) --depth;
    if (c != ',' || (depth != 0 && i != parts.size())) continue;
    std::string_view one = parts.substr(begin, i - begin);
    begin = i + 1;
    while (one.starts_with(' ')) one.remove_prefix(1);
    // "(app::Color)7" is a value without a name, and begins with a parenthesis; so does "(anonymous namespace)::red".
    std::size_t word = one.size();
    while (word > 0 && detail::is_name_character(one[word - 1])) --word;
    const bool named = word < one.size() && (one[word] < '0' || one[word] > '9') && (word == 0 || one[word - 1] == ':');
    names.emplace_back(named ? one.substr(word) : std::string_view());
  }
  return names;
}

Describer::Describer(const detail::ServedMethod& method) {
  description_.name = method.name;
  description_.id = method.id;
  description_.signature = method.signature;
  if (method.describe != nullptr) method.describe(*this);
}

std::uint32_t Describer::type(detail::DescribeType describe) {
  const auto [at, added] = known_.try_emplace(describe, static_cast<std::uint32_t>(description_.types.size()));
  const std::uint32_t index = at->second;
  if (added) {
    description_.types.emplace_back();
    const std::uint32_t outer = std::exchange(current_, index);
    describe(*this);
    current_ = outer;
  }
  return index;
}

void Describer::set(const detail::TypeFacts& facts) {
  schema::Type type{.kind = kind_of(facts.kind), .size = facts.size};
  const std::string_view text = facts.text;
  if (!text.empty()) type.name = type_name(text);
  if (type.kind == Kind::custom) type.name = facts.codec;
  if (type.kind == Kind::structure || type.kind == Kind::evolving) {
    std::size_t count = 0;
    while (facts.parts[count] != nullptr) ++count;
    type.names = field_names(text, count);
    for (std::size_t i = type.names.size(); i < count; ++i) type.names.push_back("field" + std::to_string(i + 1));
    if (facts.signatures != nullptr) type.signatures.assign(facts.signatures, facts.signatures + count);
  } else if (!text.empty() && type.kind != Kind::custom) {
    std::vector<std::string> names = enumerator_names(text);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      type.names.push_back(std::move(names[i]));
      type.values.push_back(static_cast<std::int64_t>(i));
    }
  }
  if (type.kind == Kind::duration) {
    type.numerator = facts.ratio[0];
    type.denominator = facts.ratio[1];
  }
  description_.types[current_] = std::move(type);
  const std::uint32_t index = current_;
  for (const detail::DescribeType* part = facts.parts; part != nullptr && *part != nullptr; ++part) {
    const std::uint32_t number = this->type(*part);
    description_.types[index].parts.push_back(number);
  }
}

void Describer::set_message(std::string name) {
  schema::Type& type = description_.types[current_];
  type.kind = Kind::message;
  type.name = std::move(name);
}

bool Describer::add_file(std::string_view name, std::string (*encode)(const void* file), const void* file) {
  if (!files_.emplace(name).second) return false;
  description_.files.push_back(encode(file));
  return true;
}

void Describer::set_method(const detail::DescribeType* arguments, detail::DescribeType incoming,
                           detail::DescribeType outgoing, detail::DescribeType result) {
  for (; *arguments != nullptr; ++arguments) description_.arguments.push_back(type(*arguments));
  if (incoming != nullptr) description_.incoming = type(incoming);
  if (outgoing != nullptr) description_.outgoing = type(outgoing);
  if (result != nullptr) description_.result = type(result);
}

}  // namespace hawser::rpc
