"""Etude for Conan 2: `conan create packaging/conan`, from the root of the repository.

The dependencies come from the system: LibTorch isn't in ConanCenter, and must share fmt and the C++ standard library with Etude. Conan installs
Debian's packages if tools.system.package_manager:mode allows it; LibTorch is the one that Etude's CMake config finds.
"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load, rmdir
from conan.tools.system.package_manager import Apt


class EtudeRecipe(ConanFile):
    name = "etude"
    description = "A trainer for LibTorch whose callbacks cost nothing"
    license = "MIT"
    topics = ("libtorch", "pytorch", "training", "deep-learning")
    package_type = "header-library"
    settings = "os", "compiler", "build_type", "arch"
    no_copy_source = True

    @property
    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        number = int(re.search(r"^#define ETUDE_VERSION (\d+)$", load(self, os.path.join(self._root, "include/etude/version.hpp")), re.M)[1])
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def export_sources(self):
        for pattern in "CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "include/*", "src/*":
            copy(self, pattern, src=self._root, dst=self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        Apt(self).install(["libboost-dev", "libfmt-dev", "nlohmann-json3-dev", "libxxhash-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["ETUDE_BUILD_TESTS"] = False
        toolchain.cache_variables["ETUDE_BUILD_EXAMPLES"] = False
        toolchain.cache_variables["ETUDE_BUILD_TOOLS"] = False
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        rmdir(self, os.path.join(self.package_folder, "share", "doc"))

    def package_info(self):
        # Programs use Etude's own CMake config, since it compiles the library with the program's LibTorch and flags.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "etude")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
