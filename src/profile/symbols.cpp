#include "profile/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

namespace hawser {
namespace {

constexpr std::uint64_t table_bytes_max = std::uint64_t{256} << 20;

bool read_at(std::ifstream& file, std::uint64_t offset, void* to, std::size_t bytes) {
  file.seekg(static_cast<std::streamoff>(offset));
  return file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)).good();
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : name;
}

std::string with_offset(const std::string& path, std::uintptr_t offset) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  for (; offset != 0 || hex.empty(); offset /= 16) hex.insert(hex.begin(), digits[offset % 16]);
  return std::filesystem::path(path).filename().string() + "+0x" + hex;
}

}  // namespace

Symbols::Module Symbols::read(const std::string& path, std::uintptr_t base) {
  Module module{.base = base};
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file || !read_at(file, 0, &header, sizeof header)) return module;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return module;
  if (header.e_type == ET_EXEC) module.base = 0;
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (header.e_shentsize != sizeof(Elf64_Shdr) || sections.empty() ||
      !read_at(file, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) {
    return module;
  }
  // The complete table, or that of the exported functions in a stripped file.
  auto section = std::ranges::find(sections, Elf64_Word{SHT_SYMTAB}, &Elf64_Shdr::sh_type);
  if (section == sections.end()) section = std::ranges::find(sections, Elf64_Word{SHT_DYNSYM}, &Elf64_Shdr::sh_type);
  if (section == sections.end() || section->sh_link >= sections.size()) return module;
  const Elf64_Shdr& texts = sections[section->sh_link];
  if (section->sh_size > table_bytes_max || texts.sh_size > table_bytes_max || texts.sh_size == 0) return module;
  std::vector<Elf64_Sym> symbols(section->sh_size / sizeof(Elf64_Sym));
  std::string names(texts.sh_size, '\0');
  if (symbols.empty() || !read_at(file, section->sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym)) ||
      !read_at(file, texts.sh_offset, names.data(), names.size())) {
    return module;
  }
  for (const Elf64_Sym& symbol : symbols) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_value == 0 || symbol.st_name >= names.size()) continue;
    const std::size_t end = names.find('\0', symbol.st_name);
    if (end == std::string::npos) continue;
    module.functions.push_back({symbol.st_value, symbol.st_value + std::max<std::uint64_t>(symbol.st_size, 1),
                                names.substr(symbol.st_name, end - symbol.st_name)});
  }
  std::ranges::sort(module.functions, {}, &Function::begin);
  return module;
}

std::string Symbols::name(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "[unknown]";
  const auto base = reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  const std::string path = info.dli_fname;
  auto found = modules_.find(path);
  if (found == modules_.end()) {
    // The program's own name may be relative to a folder that it has left.
    found = modules_.emplace(path, read(path == program_invocation_name ? "/proc/self/exe" : path, base)).first;
  }
  const Module& module = found->second;
  const std::uintptr_t at = reinterpret_cast<std::uintptr_t>(address) - module.base;
  auto next = std::ranges::upper_bound(module.functions, at, {}, &Function::begin);
  if (next != module.functions.begin()) {
    const Function& function = *std::prev(next);
    if (at < function.end) return demangled(function.name);
  }
  if (info.dli_sname != nullptr && info.dli_saddr != nullptr) return demangled(info.dli_sname);
  return with_offset(path, reinterpret_cast<std::uintptr_t>(address) - base);
}

}  // namespace hawser
