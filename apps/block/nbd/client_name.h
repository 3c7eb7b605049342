#pragma once

#include <string>

namespace hawser::block::nbd {

// A name for the processes of this machine that listen at the address `listen`, one after the other: only one can
// listen there at a time. It is of this start of the kernel, and of the network of the process or the folder of a Unix
// socket, so that containers have different ones. Empty if the system chooses the port: the next process has another
// address.
std::string client_name_at(const std::string& listen);

// A name for the processes that serve the block device `path` of this start of the kernel, one after the other. Empty
// if /proc is missing.
std::string client_name_of_device(const std::string& path);

}  // namespace hawser::block::nbd
