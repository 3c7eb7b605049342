#include <google/protobuf/compiler/plugin.h>

#include "generator.h"

int main(int count, char** arguments) {
  const hawser::protoc::Generator generator;
  return google::protobuf::compiler::PluginMain(count, arguments, &generator);
}
