"""Conan 2 recipe of Hawser: docs/install.md, "Conan". The libraries that Hawser needs are those of the system."""

import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt, Dnf

required_conan_version = ">=2.0"

# The packages of the base library, and those of each option: for Debian and Ubuntu, and for Fedora.
PACKAGES = {
    "": (
        ["pkg-config", "liburing-dev", "libc-ares-dev", "libibverbs-dev"],
        ["pkgconf-pkg-config", "liburing-devel", "c-ares-devel", "rdma-core-devel"],
    ),
    "brpc": (["zlib1g-dev", "libsnappy-dev"], ["zlib-devel", "snappy-devel"]),
    "grpc": (["libnghttp2-dev", "zlib1g-dev", "libzstd-dev"], ["libnghttp2-devel", "zlib-devel", "libzstd-devel"]),
    "http_gzip": (["zlib1g-dev"], ["zlib-devel"]),
    "pkcs11": (["libp11-kit-dev"], ["p11-kit-devel"]),
    "protobuf": (["libprotobuf-dev", "libprotoc-dev", "protobuf-compiler"], ["protobuf-devel", "protobuf-compiler"]),
    "tls": (["libssl-dev"], ["openssl-devel"]),
    "ucx": (["libucx-dev"], ["ucx-devel"]),
}
OPTIONS = [name for name in PACKAGES if name]
# A shared library does not export what these use.
STATIC_ONLY = [name for name in OPTIONS if name != "ucx"]


class HawserConan(ConanFile):
    name = "hawser"
    description = "RPC library for C++23 coroutines: TCP, Unix sockets, shared memory, RDMA and UCX"
    license = "Apache-2.0"
    topics = ("rpc", "coroutines", "rdma", "grpc", "networking")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {name: [True, False] for name in ["shared", "fPIC", *OPTIONS]}
    default_options = {name: name in ("fPIC", "tls") for name in options}

    def set_version(self):
        text = load(self, pathlib.Path(self.recipe_folder, "../../CMakeLists.txt"))
        self.version = re.search(r"project\(hawser VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        root = pathlib.Path(self.recipe_folder, "../..").resolve()
        for pattern in ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "apps/protoc_plugin/*"):
            copy(self, pattern, src=root, dst=self.export_sources_folder, excludes=("*/test/*", "*/__pycache__/*"))

    def configure(self):
        if self.options.shared:
            self.options.rm_safe("fPIC")
            for name in STATIC_ONLY:
                self.options.rm_safe(name)
        elif not self.options.tls:
            self.options.rm_safe("pkcs11")

    def layout(self):
        cmake_layout(self)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"hawser needs Linux, and not {self.settings.os}")
        standard = str(self.settings.get_safe("compiler.cppstd") or "none").removeprefix("gnu")
        # The standards of before 2000 have the largest numbers.
        if not standard.isdigit() or not 23 <= int(standard) < 90:
            raise ConanInvalidConfiguration(
                f"hawser needs C++23, and compiler.cppstd is {self.settings.get_safe('compiler.cppstd')}: "
                "set it with -s compiler.cppstd=23, or in the profile"
            )
        compiler, version = str(self.settings.compiler), int(str(self.settings.compiler.version).split(".")[0])
        oldest = {"gcc": 13, "clang": 19}.get(compiler)
        if oldest is None or version < oldest:
            raise ConanInvalidConfiguration(
                f"hawser needs GCC 13 or later, or Clang 19 or later, and not {compiler} {version}: "
                "name one in the profile, or make the profile with CC=clang-19 CXX=clang++-19 conan profile detect"
            )

    def system_requirements(self):
        enabled = [name for name in PACKAGES if not name or self.options.get_safe(name)]
        debian, fedora = ([], [])
        for name in enabled:
            debian += PACKAGES[name][0]
            fedora += PACKAGES[name][1]
        Apt(self).install(sorted(set(debian)), check=True)
        Dnf(self).install(sorted(set(fedora)), check=True)

    def generate(self):
        toolchain = CMakeToolchain(self)
        variables = toolchain.cache_variables
        for name in OPTIONS:
            variables[f"HAWSER_{name.upper()}"] = "ON" if self.options.get_safe(name) else "OFF"
        variables["HAWSER_SHARED"] = bool(self.options.shared)
        for name in ("TESTS", "BENCH", "CLI", "EXAMPLES"):
            variables[f"HAWSER_BUILD_{name}"] = False
        # One compilation for each layer: the shortest build.
        variables["CMAKE_UNITY_BUILD"] = True
        variables["CMAKE_UNITY_BUILD_BATCH_SIZE"] = "0"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=pathlib.Path(self.package_folder, "licenses"))

    def package_info(self):
        # Hawser's own files for CMake and pkg-config find the libraries of the system.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/hawser"]
        self.buildenv_info.append_path("PKG_CONFIG_PATH", str(pathlib.Path(self.package_folder, "lib/pkgconfig")))
