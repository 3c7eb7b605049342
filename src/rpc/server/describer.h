#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "hawser/detail/describe.h"
#include "hawser/detail/served_method.h"
#include "hawser/schema.h"

namespace hawser::rpc {

// Makes the description of one method from the functions that describe its types.
class Describer final : public detail::SchemaBuilder {
 public:
  explicit Describer(const detail::ServedMethod& method);
  schema::Description take() && { return std::move(description_); }

  void set(const detail::TypeFacts& facts) override;
  void set_message(std::string name) override;
  bool add_file(std::string_view name, std::string (*encode)(const void* file), const void* file) override;
  void set_method(const detail::DescribeType* arguments, detail::DescribeType incoming, detail::DescribeType outgoing,
                  detail::DescribeType result) override;

 private:
  std::uint32_t type(detail::DescribeType describe);

  schema::Description description_;
  std::unordered_map<detail::DescribeType, std::uint32_t> known_;
  std::unordered_set<std::string> files_;
  std::uint32_t current_ = 0;  // The type that is being described.
};

// The name of the type in a text of detail::type_text(), and the names of its parts. GCC and Clang give the same names.
std::string type_name(std::string_view text);
// Empty if the names of the `count` fields can't be found in the text.
std::vector<std::string> field_names(std::string_view text, std::size_t count);
// The name of each of the first values of an enumeration; empty where it has none.
std::vector<std::string> enumerator_names(std::string_view text);

}  // namespace hawser::rpc
