#include "block/ublk/block_node.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "block/store/store_error.h"

namespace hawser::block::ublk {
namespace {

std::string text_of(::dev_t number) { return std::to_string(::major(number)) + ":" + std::to_string(::minor(number)); }

// Nothing if the file cannot be read.
std::optional<::dev_t> read_number(const std::string& number_file) {
  std::ifstream file(number_file);
  unsigned of_driver = 0;
  unsigned of_device = 0;
  char colon = 0;
  if (!(file >> of_driver >> colon >> of_device) || colon != ':') return std::nullopt;
  return ::makedev(of_driver, of_device);
}

// The folder with one entry for each block device is there, without this one.
bool is_gone(const std::string& number_file) {
  const std::filesystem::path entry = std::filesystem::path(number_file).parent_path();
  std::error_code failed;
  return std::filesystem::is_directory(entry.parent_path(), failed) && !std::filesystem::exists(entry, failed) &&
         !failed;
}

// 0, or why the node is not one of the device. Without a number, any block device is accepted.
int check_node(const std::string& node, const std::optional<::dev_t>& number) {
  struct ::stat status{};
  if (::stat(node.c_str(), &status) != 0) return errno;
  if (!S_ISBLK(status.st_mode)) return ENOTBLK;
  return number && status.st_rdev != *number ? ENXIO : 0;
}

// `node` is a block device. `error`: errno of a failure.
nbd::SocketDescriptor open_node(const std::string& node, int& error) {
  nbd::SocketDescriptor opened(::open(node.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
  if (!opened.valid()) error = errno;
  return opened;
}

}  // namespace

Result<nbd::SocketDescriptor> open_exclusively(const std::string& node, const std::string& number_file) {
  if (is_gone(number_file)) return nbd::SocketDescriptor();
  const std::optional<::dev_t> number = read_number(number_file);
  int error = check_node(node, number);
  if (error == 0) {
    nbd::SocketDescriptor opened = open_node(node, error);
    if (opened.valid()) return opened;
  }
  if (error == EBUSY || !number) return system_fail(error, "open " + node);
  const std::string own = node + "." + std::to_string(::getpid());
  const std::string action = "a node of the block device " + text_of(*number) + " at " + own + ", because " + node +
                             " cannot be opened (" + std::generic_category().message(error) + ")";
  if (::mknod(own.c_str(), S_IFBLK | S_IRUSR, *number) != 0) return system_fail(errno, "make " + action);
  nbd::SocketDescriptor opened = open_node(own, error);
  ::unlink(own.c_str());
  if (!opened.valid()) return system_fail(error, "open " + action);
  return opened;
}

}  // namespace hawser::block::ublk
