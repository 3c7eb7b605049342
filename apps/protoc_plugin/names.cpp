#include "names.h"

#include <google/protobuf/compiler/cpp/names.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace hawser::protoc {

namespace {

// Keywords of C++23, and the alternative spellings of operators.
constexpr std::string_view keywords[] = {
    "alignas",
    "alignof",
    "and",
    "and_eq",
    "asm",
    "auto",
    "bitand",
    "bitor",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "char16_t",
    "char32_t",
    "char8_t",
    "class",
    "co_await",
    "co_return",
    "co_yield",
    "compl",
    "concept",
    "const",
    "const_cast",
    "consteval",
    "constexpr",
    "constinit",
    "continue",
    "decltype",
    "default",
    "delete",
    "do",
    "double",
    "dynamic_cast",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "noexcept",
    "not",
    "not_eq",
    "nullptr",
    "operator",
    "or",
    "or_eq",
    "private",
    "protected",
    "public",
    "register",
    "reinterpret_cast",
    "requires",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "static_assert",
    "static_cast",
    "struct",
    "switch",
    "template",
    "this",
    "thread_local",
    "throw",
    "true",
    "try",
    "typedef",
    "typeid",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "wchar_t",
    "while",
    "xor",
    "xor_eq",
    // Macros of the standard headers, and of compilers in GNU mode.
    "NULL",
    "EOF",
    "assert",
    "errno",
    "stdin",
    "stdout",
    "stderr",
    "signals",
    "linux",
    "unix",
};

// Names of the generated class and its Stub.
constexpr std::string_view own_names[] = {"Stub",      "hawser_service_name", "hawser_register", "hawser_via_",
                                          "HawserVia", "HawserOptions",       "HawserRequest"};

template <std::size_t count>
bool contains(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string escaped(std::string_view name) { return std::string(name).append(contains(keywords, name) ? "_" : ""); }

}  // namespace

std::string message_class(const google::protobuf::Descriptor& message) {
  std::string name = google::protobuf::compiler::cpp::QualifiedClassName(&message);
  // The generator of messages writes a macro that only its own code may use.
  constexpr std::string_view macro = "PROTOBUF_NAMESPACE_ID";
  if (const std::size_t at = name.find(macro); at != std::string::npos) {
    name.replace(at, macro.size(), "google::protobuf");
  }
  return name;
}

std::string namespace_of(const google::protobuf::FileDescriptor& file) {
  std::string result;
  std::string_view rest = file.package();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    if (!result.empty()) result += "::";
    result += escaped(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return result;
}

ServiceNames names_of(const google::protobuf::ServiceDescriptor& service) {
  ServiceNames names{.service = escaped(service.name()), .methods = {}, .error = {}};
  if (names.service == "HawserVia") names.service += "_";
  std::set<std::string> used;
  for (int i = 0; i < service.method_count(); ++i) {
    std::string name = escaped(service.method(i)->name());
    if (contains(own_names, name) || name == names.service) name += "_";
    if (!used.insert(name).second) {
      names.error = "methods of " + std::string(service.full_name()) + " would have the same name '" + name +
                    "' in C++: '" + std::string(service.method(i)->name()) +
                    "' gets a '_' at its end there, because C++ or the generated class uses its name. Rename one of " +
                    "the two methods";
    }
    names.methods.push_back(std::move(name));
  }
  return names;
}

}  // namespace hawser::protoc
