"""Builds a program with the package, by CMake and by pkg-config, and runs both."""

import pathlib

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class HawserTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "VirtualBuildEnv", "VirtualRunEnv"
    test_type = "explicit"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # Writes nothing beside this file.
        options = self.dependencies["hawser"].options
        names = [name for name in ("tls", "grpc", "brpc", "protobuf") if options.get_safe(name)]
        toolchain.cache_variables["COMPONENTS"] = ";".join(names)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            for program in ("by_cmake", "by_pkg_config"):
                self.run(str(pathlib.Path(self.build_folder, program)), env="conanrun")
