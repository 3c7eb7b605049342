#include "block/nbd/client_name.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace hawser::block::nbd {
namespace {

std::string device_and_inode(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return {};
  return std::to_string(status.st_dev) + ':' + std::to_string(status.st_ino);
}

std::string start_of_kernel() {
  std::string id;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, id);
  return id;
}

}  // namespace

std::string client_name_of_device(const std::string& path) {
  const std::string kernel = start_of_kernel();
  return kernel.empty() ? kernel : kernel + ' ' + path;
}

std::string client_name_at(const std::string& listen) {
  constexpr std::string_view prefix = "unix:";
  const bool local = listen.starts_with(prefix);
  const bool file = local && !listen.starts_with("unix:@");
  if (!local && listen.ends_with(":0")) return {};
  const std::string kernel = start_of_kernel();
  const std::filesystem::path path = file ? std::filesystem::absolute(listen.substr(prefix.size())) : "";
  const std::string place = device_and_inode(file ? path.parent_path() : "/proc/self/ns/net");
  if (kernel.empty() || place.empty()) return {};
  return kernel + ' ' + place + ' ' + (file ? path.filename().string() : listen);
}

}  // namespace hawser::block::nbd
