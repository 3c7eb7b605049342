#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hawser {

// Names of the functions of this process, from the symbol tables of its files. A file is read when an address of it is
// asked for first. Used by one thread at a time.
class Symbols {
 public:
  // The demangled name of the function that contains `address`; without a symbol, "file+0xoffset"; "[unknown]" for
  // memory that belongs to no file.
  std::string name(const void* address);

 private:
  struct Function {
    std::uintptr_t begin;  // As in the file.
    std::uintptr_t end;
    std::string name;  // Mangled.
  };
  struct Module {
    std::uintptr_t base = 0;  // Address of the file's address 0.
    std::vector<Function> functions = {};
  };
  static Module read(const std::string& path, std::uintptr_t base);

  std::map<std::string, Module> modules_;
};

}  // namespace hawser
