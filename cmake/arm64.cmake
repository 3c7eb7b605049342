# The preset arm64: cross-compiles for 64-bit Arm with Clang, against the Debian 13 that tools/debian13-arm64 makes, and
# runs test programs under QEMU's emulation of a process.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH hawser_arm64_root)
string(APPEND hawser_arm64_root /build/debian13-arm64)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER clang++-19)
set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
set(CMAKE_SYSROOT ${hawser_arm64_root})
set(CMAKE_EXE_LINKER_FLAGS_INIT -fuse-ld=lld)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${hawser_arm64_root})

# Programs are those of this machine, everything else is the root's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${hawser_arm64_root})
set(ENV{PKG_CONFIG_LIBDIR} ${hawser_arm64_root}/usr/lib/aarch64-linux-gnu/pkgconfig:${hawser_arm64_root}/usr/share/pkgconfig)
