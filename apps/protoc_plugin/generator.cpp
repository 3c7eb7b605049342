#include "generator.h"

#include <google/protobuf/compiler/cpp/names.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "names.h"

namespace hawser::protoc {

namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::io::Printer;

using Words = std::map<std::string, std::string>;

// Prints the comment that precedes a declaration in the .proto file.
template <class Declared>
void print_comment(Printer& printer, const Declared& declared) {
  google::protobuf::SourceLocation location;
  if (!declared.GetSourceLocation(&location)) return;
  std::istringstream lines(location.leading_comments);
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\\')) line.pop_back();
    printer.Print("//$line$\n", "line", line);
  }
}

std::string kind_of(const MethodDescriptor& method) {
  std::string text("rpc ");
  text.append(method.name()).append(method.client_streaming() ? "(stream " : "(");
  text.append(method.input_type()->full_name())
      .append(method.server_streaming() ? ") returns (stream " : ") returns (");
  return text.append(method.output_type()->full_name()).append(")");
}

std::string result_of(const MethodDescriptor& method) {
  return "::hawser::Task<::hawser::Result<" +
         (method.server_streaming() ? std::string("void") : message_class(*method.output_type())) + ">>";
}

// The parameters of the handler after its Context; `named`: with their names.
std::string parameters_of(const MethodDescriptor& method, bool named) {
  const std::string request = message_class(*method.input_type());
  std::string text = method.client_streaming() ? ", ::hawser::Reader<" + request + ">" + (named ? " requests" : "")
                                               : ", const " + request + "&" + (named ? " request" : "");
  if (method.server_streaming()) {
    text += ", ::hawser::Writer<" + message_class(*method.output_type()) + ">" + (named ? " replies" : "");
  }
  return text;
}

class ServicePrinter {
 public:
  ServicePrinter(Printer& printer, const ServiceDescriptor& service, const ServiceNames& names)
      : printer_(printer), service_(service), names_(names), space_(namespace_of(*service.file())) {
    words_["class"] = names.service;
    words_["full"] = service.full_name();
    words_["qualified"] = "::" + (space_.empty() ? "" : space_ + "::") + names.service;
  }

  void print() {
    open_namespace();
    print_class();
    close_namespace();
    each_method([&](const MethodDescriptor&) {
      printer_.Print(words_,
                     "template <>\n"
                     "inline constexpr ::std::string_view hawser::method_name_override<&$qualified$::$method$> =\n"
                     "    \"$full$/$wire$\";\n");
    });
    printer_.Print("\n");
    open_namespace();
    print_definitions();
    print_stub();
    close_namespace();
  }

 private:
  void open_namespace() {
    if (!space_.empty()) printer_.Print("namespace $space$ {\n\n", "space", space_);
  }
  void close_namespace() {
    if (!space_.empty()) printer_.Print("}  // namespace $space$\n\n", "space", space_);
  }

  template <class Use>
  void each_method(Use use) {
    for (int i = 0; i < service_.method_count(); ++i) {
      const MethodDescriptor& method = *service_.method(i);
      words_["method"] = names_.methods[static_cast<std::size_t>(i)];
      words_["wire"] = method.name();
      words_["kind"] = kind_of(method);
      words_["result"] = result_of(method);
      words_["request"] = message_class(*method.input_type());
      words_["parameters"] = parameters_of(method, true);
      words_["unnamed"] = parameters_of(method, false);
      use(method);
    }
  }

  void print_class() {
    print_comment(printer_, service_);
    printer_.Print(words_,
                   "// Derive from it and override the methods that the server implements; the others answer\n"
                   "// `unknown_method`. Register it by hawser::Server::add_service().\n"
                   "class $class$ {\n"
                   " public:\n"
                   "  static constexpr ::std::string_view hawser_service_name = \"$full$\";\n"
                   "  // Calls this service over `HawserVia`, a hawser::Caller such as a hawser::Client.\n"
                   "  template <class HawserVia = ::hawser::Client>\n"
                   "  class Stub;\n"
                   "\n"
                   "  virtual ~$class$() = default;\n"
                   "\n");
    printer_.Indent();
    each_method([&](const MethodDescriptor& method) {
      print_comment(printer_, method);
      printer_.Print(words_,
                     "// $kind$\n"
                     "virtual $result$ $method$(::hawser::Context& context$parameters$);\n"
                     "\n");
    });
    printer_.Outdent();
    printer_.Print(words_,
                   "  // For hawser::Server::add_service().\n"
                   "  static void hawser_register(::hawser::Server& server, $class$* service,\n"
                   "                              ::hawser::HandlerOptions options);\n"
                   "};\n"
                   "\n");
  }

  void print_definitions() {
    each_method([&](const MethodDescriptor&) {
      printer_.Print(words_,
                     "inline $result$ $class$::$method$(::hawser::Context&$unnamed$) {\n"
                     "  co_return ::std::unexpected(::hawser::detail::unimplemented(\"$full$/$wire$\"));\n"
                     "}\n"
                     "\n");
    });
    printer_.Print(words_,
                   "inline void $class$::hawser_register(::hawser::Server& server, $class$* service,\n"
                   "    ::hawser::HandlerOptions options) {\n");
    if (service_.method_count() == 0) {
      printer_.Print("  static_cast<void>(server);\n  static_cast<void>(service);\n  static_cast<void>(options);\n");
    }
    each_method([&](const MethodDescriptor&) {
      printer_.Print(words_, "  ::hawser::pb::add_method<&$class$::$method$>(server, service, options);\n");
    });
    printer_.Print(
        "}\n"
        "\n");
  }

  void print_stub() {
    printer_.Print(
        words_,
        "// The methods with streams return a Task<Result<StreamingCall>>. The others return what call() of\n"
        "// `HawserVia` returns, such as hawser::Call. An rvalue request is kept in the call; an lvalue must stay\n"
        "// valid until the call has ended. `HawserVia` must outlive the stub and its calls.\n"
        "template <class HawserVia>\n"
        "class $class$::Stub {\n"
        " public:\n"
        "  explicit Stub(HawserVia& via) noexcept : hawser_via_(&via) {}\n"
        "\n");
    printer_.Indent();
    each_method([&](const MethodDescriptor& method) {
      words_["send"] = method.client_streaming() || method.server_streaming() ? "open" : "call";
      printer_.Print(words_, "// $kind$\n");
      if (method.client_streaming()) {
        printer_.Print(words_,
                       "auto $method$() const {\n"
                       "  return ::hawser::pb::open<&$class$::$method$>(*hawser_via_);\n"
                       "}\n"
                       "template <::hawser::pb::SameAs<::hawser::CallOptions> HawserOptions = ::hawser::CallOptions>\n"
                       "auto $method$(HawserOptions&& options) const {\n"
                       "  return ::hawser::pb::open<&$class$::$method$>(*hawser_via_,\n"
                       "      ::std::forward<HawserOptions>(options));\n"
                       "}\n"
                       "\n");
      } else {
        printer_.Print(words_,
                       "template <::hawser::pb::SameAs<$request$> HawserRequest = $request$>\n"
                       "auto $method$(HawserRequest&& request) const {\n"
                       "  return ::hawser::pb::$send$<&$class$::$method$>(*hawser_via_,\n"
                       "      ::std::forward<HawserRequest>(request));\n"
                       "}\n"
                       "template <::hawser::pb::SameAs<::hawser::CallOptions> HawserOptions = ::hawser::CallOptions,\n"
                       "          ::hawser::pb::SameAs<$request$> HawserRequest = $request$>\n"
                       "auto $method$(HawserOptions&& options, HawserRequest&& request) const {\n"
                       "  return ::hawser::pb::$send$<&$class$::$method$>(*hawser_via_,\n"
                       "      ::std::forward<HawserOptions>(options), ::std::forward<HawserRequest>(request));\n"
                       "}\n"
                       "\n");
      }
    });
    printer_.Outdent();
    printer_.Print(
        " private:\n"
        "  HawserVia* hawser_via_;\n"
        "};\n"
        "\n");
  }

  Printer& printer_;
  const ServiceDescriptor& service_;
  const ServiceNames& names_;
  const std::string space_;
  Words words_;
};

}  // namespace

bool Generator::Generate(const FileDescriptor* file, const std::string& parameter,
                         google::protobuf::compiler::GeneratorContext* context, std::string* error) const {
  if (!parameter.empty()) {
    *error = "protoc-gen-hawser has no options, and '" + parameter + "' was given: remove --hawser_opt";
    return false;
  }
  if (file->options().cc_generic_services() && file->service_count() != 0) {
    *error = "option cc_generic_services makes protoc generate a class " + std::string(file->service(0)->name()) +
             ", which is also the name of Hawser's class: remove the option, or generate without protoc-gen-hawser";
    return false;
  }
  std::vector<ServiceNames> names;
  for (int i = 0; i < file->service_count(); ++i) {
    names.push_back(names_of(*file->service(i)));
    if (!names.back().error.empty()) {
      *error = names.back().error;
      return false;
    }
  }
  const std::string base = google::protobuf::compiler::cpp::StripProto(file->name());
  const std::unique_ptr<google::protobuf::io::ZeroCopyOutputStream> out(context->Open(base + ".hawser.h"));
  Printer printer(out.get(), '$');
  printer.Print(
      "// Generated by protoc-gen-hawser from $file$. Changes are lost when it is generated again.\n"
      "#pragma once\n"
      "\n"
      "#include <hawser/protobuf_service.h>\n"
      "\n"
      "#include \"$base$.pb.h\"\n"
      "\n",
      "file", file->name(), "base", base);
  for (int i = 0; i < file->service_count(); ++i) {
    ServicePrinter(printer, *file->service(i), names[static_cast<std::size_t>(i)]).print();
  }
  return true;
}

}  // namespace hawser::protoc
