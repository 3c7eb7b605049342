#!/usr/bin/env python3
"""Checks what a compiler does not: layers, lengths, wording. Names file, line and remedy; exits 1 if anything is wrong.

tidy.py                     the rules that only read
tidy.py --headers COMPILER  every header compiles alone, and hawser.h stays light
tidy.py --format            sources lie as clang-format-19 lays them; exits 77 where it is not installed
tidy.py --prose             how many comments, error texts and pages of each folder still break the rules of prose
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

import prose

HEADER_LINES_MAX = 300
SOURCE_LINES_MAX = 600
PREPROCESSED_LINES_MAX = 75_500  # docs/decisions/0077
SKIPPED = 77

# Files that may be longer, with the reason.
LONG_FILES = {
    "src/transport/rdma/device/ibverbs.cpp": "the only file that includes the vendor's header; one class for each verbs object",
}

# Files outside backends and pollers that may use #if, with the reason.
CONDITIONAL_FILES = {
    "include/hawser/detail/language.h": "the version of the language can only be asked about through the preprocessor",
    "include/hawser/detail/offload.h": "a warning of GCC that Clang does not know",
    "src/heap/frame_pool.cpp": "address sanitizers can only be asked about through the preprocessor",
    "src/heap/block_pool.cpp": "address sanitizers can only be asked about through the preprocessor",
    "src/heap_profile/operators.cpp": "sanitizers can only be asked about through the preprocessor",
    "src/protocol/http/gzip.cpp": "zlib is optional there, and the component has the same functions without it",
    "src/protocol/http/gzip_stream.cpp": "zlib is optional there, and the component has the same functions without it",
    "src/base/crc32c.cpp": "each processor has its own CRC instruction, which is chosen at run time",
    "src/base/processor.h": "what differs between processors",
    "src/base/parse_double.cpp": "the std::from_chars of libc++ 19 reads no floating-point numbers",
}
CONDITIONAL_FOLDERS = ("src/transport/*/*", "src/exec/*poller*", "src/exec/*uring*", "tests/*", "apps/bench/*", "fuzz/*")

# Calls of the library that make a descriptor. Their result goes at once to an owner that keeps it above the standard
# descriptors (base/descriptor.h). The programs open these first.
MAKES_DESCRIPTOR = re.compile(
    r"(?<![\w.>])(?:::)?(?:open(?:at)?\([^;]*?\bO_\w+|creat\(|opendir\(|mkos?temps?\(|shm_open\(|"
    r"(?:socket|socketpair|pipe2?|accept4?|epoll_create1?|eventfd|timerfd_create|memfd_create|inotify_init1?|signalfd)\("
    r"[^;]*?(?:SOCK_|O_|EPOLL_|EFD_|TFD_|MFD_|IN_|SFD_|nullptr)|dup\(\w|fcntl\([^;]*?\bF_DUPFD|"
    r"syscall\(SYS_(?:pidfd_open|memfd_secret|userfaultfd|perf_event_open)|io_uring_queue_init)|\bstd::o?fstream\b")
OWNED = re.compile(r"(?:\bDescriptor(?: \w+)?|\babove_standard|_)\(\s*(?:static_cast<int>\()?$|\bDescriptor $")
# Calls of the library that raise SIGPIPE, unless with MSG_NOSIGNAL or within WriteSignalsBlocked.
RAISES_SIGPIPE = re.compile(
    r"(?<![\w.>])(?:::)?(?:(?:write|writev|pwritev2|splice|sendfile|dprintf)\((?:\w*fd\w*|descriptor|[\w.]+\.get\(\)),|"
    r"send(?:msg|to|mmsg)?\((?:\w*fd\(?\)?|\w*socket\w*|to|descriptor|[\w.]+\.get\(\)),(?![^;]*\bMSG_NOSIGNAL))")
# A number with a decimal point that C writes or reads as the locale of the process says.
FOLLOWS_LOCALE = re.compile(r'printf\([^;]*?"[^"\n]*%[-+ #0]*[\d*]*(?:\.[\d*]+)?[aefgAEFG]|\b(?:strtod|std::stod|atof)\(')
RAW_DESCRIPTOR_FILES = {
    "src/base/descriptor.cpp": "the owner itself",
    "src/base/log_output.cpp": "writes within WriteSignalsBlocked",
    "src/os/cpu_latency.cpp": "writes to a device, which raises no signal",
    "src/os/file_watch.cpp": "writes to an eventfd, which raises no signal",
    "src/exec/io_uring.cpp": "the descriptors are results in a structure and an array, and are moved from there",
}

# Folders with comments, error texts or pages that break the rules of prose.py. The table only shrinks: tidy.py asks for
# the removal of an entry whose folder is clean.
PROSE_PENDING = (
    "tools",
)

# The dependencies of docs/architecture.md. A layer may include itself, the public headers and these. Backends
# (transport/NAME) know no other backend; only runtime names them.
LAYERS = {
    "base": (),
    "heap": ("base",),
    "os": ("heap", "base"),
    "profile": ("os", "heap", "base"),
    "metrics": ("base",),
    "exec": ("table", "os", "heap", "base"),
    "wire": ("table", "base"),
    "json": ("base",),
    "table": (),
    "compress": ("base",),
    "codec": ("base",),
    "pipe": (),
    "transport": ("pipe", "wire", "exec", "table", "base"),
    "transport/*": ("transport", "pipe", "wire", "exec", "table", "os", "heap", "base"),
    "negotiate": ("wire", "exec", "transport", "pipe", "table", "base"),
    "rpc": ("negotiate", "wire", "codec", "exec", "transport", "pipe", "metrics", "table", "os", "heap", "base"),
    "protocol": ("rpc", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "protocol/http": ("rpc", "json", "compress", "metrics", "wire", "codec", "exec", "transport", "pipe", "table", "os", "base"),
    "protocol/baidu_std": ("rpc", "negotiate", "compress", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "observe": ("rpc", "negotiate", "json", "metrics", "wire", "codec", "exec", "transport", "pipe", "table", "profile", "os", "heap", "base"),
    "heap_profile": ("profile", "heap", "base"),
    "cluster": ("rpc", "transport/tcp", "transport", "json", "exec", "table", "os", "base"),
    "cluster/consul": ("cluster", "json", "transport/tcp", "transport", "exec", "table", "base"),
    "cluster/etcd": ("cluster", "protocol/grpc", "rpc", "json", "wire", "codec", "exec", "transport", "table", "base"),
    "cluster/xds": ("cluster", "protocol/grpc", "rpc", "wire", "codec", "exec", "transport", "table", "base"),
    "cluster/kubernetes": ("cluster", "json", "transport/tcp", "transport", "exec", "table", "base"),
    "kv": ("rpc", "wire", "codec", "exec", "transport", "pipe", "table", "os", "heap", "base"),
    "protocol/resp": ("rpc", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "security/tls": ("rpc", "json", "transport", "pipe", "exec", "table", "os", "heap", "base"),
    "testing": ("transport/sim", "transport", "pipe", "wire", "exec", "table", "base"),
    "transport/ucx/absent": ("transport/ucx", "transport", "pipe", "wire", "exec", "table", "base"),
    "protocol/http2": ("transport", "pipe", "exec", "table", "base"),
    "protocol/grpc": ("protocol/http2", "rpc", "negotiate", "compress", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "transport/sim/rdma": ("transport/rdma", "transport", "pipe", "wire", "exec", "table", "base"),
    "protobuf": ("rpc", "json", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "protobuf/channel": ("protobuf", "protocol/baidu_std", "rpc", "negotiate", "wire", "codec", "exec", "transport", "pipe", "table", "base"),
    "runtime": ("protocol", "rpc", "wire", "codec", "exec", "transport", "pipe", "transport/*", "table", "os", "base"),
}
# Folders of src/transport that are not backends.
PARTS_OF_TRANSPORT = ("common", "conformance", "test")
# A transport carries messages and does not read them. It may include only this header of wire, for message lengths and
# their limit.
WIRE_FOR_TRANSPORTS = ("wire/message.h",)
# Files that decide without I/O, with the headers of the project that they may include: no socket, no clock, no coroutine.
WITHOUT_IO_IN_NEGOTIATE = ("action.h", "messages.*", "settle.*", "client_machine.*", "server_machine.*")
WITHOUT_IO = {
    f"src/negotiate/{name}": (*(f"negotiate/{name}" for name in WITHOUT_IO_IN_NEGOTIATE), "wire/*", "base/*",
                              "transport/path_proof.h", "hawser/bytes.h", "hawser/error.h", "hawser/transports.h")
    for name in WITHOUT_IO_IN_NEGOTIATE
}
STANDARD_HEADERS_WITH_IO = ("chrono", "condition_variable", "coroutine", "fstream", "future", "iostream", "mutex", "thread")
# A test of a layer may include these layers as well: it may run over the simulated network.
TEST_LAYERS = ("transport/sim", "transport", "exec", "table", "os", "heap", "base")

OS_HEADERS_IN = ("base", "heap", "os", "profile", "exec", "transport/*", "runtime")
VENDOR_HEADERS_IN = ("transport/*",)
VENDOR_HEADERS = ("infiniband/", "rdma/", "ucp/", "ucs/", "uct/", "cuda", "hip/")
# Headers of other libraries, with the files that may include them.
LIBRARY_HEADERS = {
    "liburing": ("src/exec/*",),
    "ares": ("src/transport/tcp/*",),
    "zlib": ("src/compress/*",),
    "google/protobuf/": ("src/protobuf/*", "src/protocol/*", "include/hawser/protobuf*.h", "include/hawser/pb/*.h"),
    "snappy": ("src/protocol/baidu_std/*",),
    "openssl/": ("src/security/tls/*",),
    "p11-kit/": ("src/security/tls/pkcs11/*",),
    "dlfcn.h": ("src/security/tls/pkcs11/*", "src/transport/*", "src/profile/*", "src/exec/*", "src/runtime/*"),
    "nghttp2/": ("src/protocol/http2/*",),
    "zstd": ("src/protocol/grpc/*",),
    "gtest/": ("src/*_test.cpp", "src/*_testing.h"),
    "gmock/": ("src/*_test.cpp", "src/*_testing.h"),
}

STANDARD_HEADERS = frozenset("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution expected filesystem format forward_list
fstream functional future generator initializer_list iomanip ios iosfwd iostream istream iterator latch limits list
locale map mdspan memory memory_resource mutex new numbers numeric optional ostream print queue random ranges ratio
regex scoped_allocator semaphore set shared_mutex source_location span spanstream sstream stack stacktrace stdexcept
stdfloat stop_token streambuf string string_view strstream syncstream system_error thread tuple type_traits typeindex
typeinfo unordered_map unordered_set utility valarray variant vector version
""".split())

# Namespaces whose name is not that of their folder below src, with the reason.
NAMESPACES = {
    "protobuf": "pb",  # Public, and short because users write it as often as bRPC's own namespace.
}
# Their types have the names of bRPC's types, so that programs can be moved: they may have the name of another type.
NAMES_OF_OTHERS = ("include/hawser/protobuf*", "src/protobuf/*")

# The words are split so that this file does not contain them.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|tmp|home|root)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef)\b")
TEST = re.compile(r"^\s*(?:(?:TYPED_)?TEST(?:_F|_P)?|INSTANTIATE_(?:TYPED_)?TEST_SUITE_P)\s*\(", re.MULTILINE)
# A type at namespace scope: clang-format does not indent what lies in a namespace.
TYPE = re.compile(r"^(?:template <[^\n]*>\n? *)?(?:class|struct|enum class|enum|union)(?: alignas\([^)]*\))? ([A-Z]\w*)"
                  r"(?: final)?(?: :[^;{]*)?\s*\{", re.MULTILINE)
NAMESPACE = re.compile(r"^(?:inline )?namespace (hawser[\w:]*) \{", re.MULTILINE)
LAYER_CALL = re.compile(r"^\s*hawser_layer\((\S+?)(\s[^)]*)?\)", re.MULTILINE)
DEPENDS = re.compile(r"\sDEPENDS\s+((?:[^\sA-Z$]\S*\s*)*)")

TEXT_SUFFIXES = {".h", ".cpp", ".py", ".sh", ".cmake", ".txt", ".md", ".json", ".yml", ".in", ""}
SKIPPED_FOLDERS = ("build*", "cmake-build*", ".git", ".cache", ".ccache", "__pycache__", "corpus", "third_party")
SKIPPED_FILES = ("LICENSE", ".git")


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    problem: str
    remedy: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.problem}; {self.remedy}"


def matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def layer_of(path):
    """Returns the layer of a path below src/, such as "exec" or "transport/tcp"; None for other paths. Other
    subfolders, such as test/, belong to the layer above them."""
    parts = path.split("/")[1:-1]
    if not path.startswith("src/") or not parts:
        return None
    for count in range(len(parts), 1, -1):
        folder = "/".join(parts[:count])
        if folder in LAYERS:
            return folder
    if parts[0] == "transport" and len(parts) > 1 and parts[1] not in PARTS_OF_TRANSPORT:
        return "/".join(parts[:2])
    return parts[0]


def allowed_layers(layer):
    if layer in LAYERS:
        return LAYERS[layer]
    return next((down for pattern, down in LAYERS.items() if fnmatch.fnmatchcase(layer, pattern)), None)


def check_layer_include(path, header):
    """Returns why `path` may not include the project's own `header`, as (problem, remedy), or None."""
    for files, allowed in WITHOUT_IO.items():
        if matches(path, (files,)) and not matches(header, allowed):
            return (f'"{header}" in a file that decides without I/O',
                    "do it in the driver, and pass the outcome in; or list the header in WITHOUT_IO if it has none")
    if header.startswith("hawser/"):
        return None
    if path.startswith(("tests/", "apps/", "fuzz/")):
        return None
    if path.startswith("python/"):
        if "/" not in header:  # A header of python/src.
            return None
        return f'the Python package includes "{header}" from src/', "use installed headers only, as a user would"
    if path.startswith("integrations/"):
        target = layer_of(f"src/{header}")
        if target is None or allowed_layers(target) is None:  # A header of its own, or of the other project.
            return None
        return f'an integration includes "{header}" from src/', "use installed headers only, as a user would"
    if path.startswith("include/"):
        return (f'a public header includes "{header}" from src/',
                "move what users need to include/hawser/, or forward-declare it")
    if path.startswith("examples/"):
        if header.endswith((".pb.h", ".hawser.h")):  # Generated from a .proto file.
            return None
        if header == "echo_service.h":  # The service that the programs of examples/brpc share.
            return None
        return f'an example includes "{header}" from src/', "use public headers only, as a user would"
    layer = layer_of(path)
    target = layer_of(f"src/{header}")
    if target is None or allowed_layers(target) is None:
        return (f'"{header}" names no layer',
                'write the path from src/ or include/, such as "exec/mailbox.h", or add the folder to LAYERS')
    down = allowed_layers(layer)
    if down is None:
        return f"src/{layer} is no known layer", "add it to LAYERS in tools/tidy.py and to docs/architecture.md"
    if target == "wire" and layer.startswith("transport") and header not in WIRE_FOR_TRANSPORTS:
        return (f'a transport includes "{header}"',
                f"a transport does not look into messages: use {', '.join(WIRE_FOR_TRANSPORTS)}, or do it in src/rpc")
    if target == layer or matches(target, down):
        return None
    if path.endswith(("_test.cpp", "_testing.h")) and target in TEST_LAYERS:
        return None
    if layer.startswith("transport/") and target.startswith("transport/"):
        remedy = "backends know no other backend: move what both need to src/transport"
    elif target.startswith("transport/"):
        remedy = "only runtime names backends: use src/transport's interfaces and capabilities"
    else:
        remedy = "move what is needed down, or pass it in from above"
    return f"the arrow from {layer} to {target} points up", remedy


def check_system_include(path, header):
    """Returns why `path` may not include <header>, as (problem, remedy), or None."""
    if header in STANDARD_HEADERS_WITH_IO and matches(path, WITHOUT_IO):
        return f"<{header}> in a file that decides without I/O", "do it in the driver, and pass the outcome in"
    if not path.startswith(("include/", "src/")) or header in STANDARD_HEADERS or header.startswith("hawser/"):
        return None
    for prefix, users in LIBRARY_HEADERS.items():
        if header.startswith(prefix):
            if matches(path, users):
                return None
            return f"<{header}> does not belong here", f"only {' and '.join(users)} may include it"
    if path.startswith("include/"):
        return (f"a public header includes <{header}>, which is not of the standard library",
                "keep it behind a forward declaration in src/")
    layer = layer_of(path) or ""
    if header.startswith(VENDOR_HEADERS):
        if matches(layer, VENDOR_HEADERS_IN):
            return None
        return f"vendor header <{header}> outside a backend", "vendor headers live in src/transport/NAME/ only"
    if matches(layer, OS_HEADERS_IN):
        return None
    return (f"system header <{header}> in {layer}",
            f"use the standard library, or move it to one of {', '.join(OS_HEADERS_IN)}")


def check_lines(path, lines):
    """Applies the rules that check each line separately."""
    cpp = path.endswith((".h", ".cpp"))
    conditionals = not cpp or path in CONDITIONAL_FILES or matches(path, CONDITIONAL_FOLDERS)
    makefile = path.endswith(("Makefile", "debian/rules"))
    for number, line in enumerate(lines, 1):
        if cpp and (include := INCLUDE.match(line)):
            quote, header = include.groups()
            wrong = (check_layer_include if quote == '"' else check_system_include)(path, header)
            if wrong:
                yield Finding(path, number, *wrong)
        if not conditionals and CONDITIONAL.match(line):
            yield Finding(path, number, "preprocessor condition outside a backend",
                          "branch on a capability or choose in CMake; else list it in CONDITIONAL_FILES with a reason")
        if line != line.rstrip():
            yield Finding(path, number, "trailing blank", "remove it (make format)")
        if "\t" in line and not makefile:
            yield Finding(path, number, "tab", "use spaces (make format)")
        if word := UNFINISHED.search(line):
            yield Finding(path, number, f"{word.group()} marks unfinished work", "finish it, or open an issue and drop it")
        if place := MACHINE_PATH.search(line):
            yield Finding(path, number, f"path of a machine: {place.group()}",
                          "make it relative, or take it from an option or a temporary folder")


def check_file(path, text):
    lines = text.split("\n")
    yield from check_lines(path, [line.removesuffix("\r") if os.name == "nt" else line for line in lines])
    if prose_is_checked(path):
        yield from check_prose(path, text)
    if not path.endswith((".h", ".cpp")):
        return
    yield from check_descriptors(path, text)
    yield from check_locale(path, text)
    yield from check_namespace(path, text)
    count = len(text.splitlines())
    limit = HEADER_LINES_MAX if path.endswith(".h") else SOURCE_LINES_MAX
    if count > limit and path not in LONG_FILES:
        yield Finding(path, count, f"{count} lines, more than {limit}",
                      "split it by noun, or list it in LONG_FILES with a reason")
    if path.endswith(".h") and not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield Finding(path, 1, "#pragma once is missing", "make it the first line")
    if path.endswith("_test.cpp") and not TEST.search(text):
        yield Finding(path, 1, "a test file without a TEST", "add one, or rename the file")


def check_descriptors(path, text):
    """Finds descriptors that may become standard descriptors, and writes that may raise SIGPIPE."""
    if not path.startswith("src/") or "/test/" in path or path.endswith("_testing.h") or path in RAW_DESCRIPTOR_FILES:
        return
    text = re.sub(r"//[^\n]*", "", text)
    for call in MAKES_DESCRIPTOR.finditer(text):
        if not OWNED.search(text[:call.start()]):
            yield Finding(path, text.count("\n", 0, call.start()) + 1, "a descriptor that may be 0, 1 or 2",
                          "make it within Descriptor(...) or above_standard(...), or list the file with a reason")
    for call in RAISES_SIGPIPE.finditer(text):
        yield Finding(path, text.count("\n", 0, call.start()) + 1, "a write that may raise SIGPIPE",
                      "use MSG_NOSIGNAL or WriteSignalsBlocked, or list the file in RAW_DESCRIPTOR_FILES with a reason")


def check_locale(path, text):
    """Finds numbers of the library whose point is a comma in a program with another locale."""
    if not path.startswith("src/") or "/test/" in path:
        return
    for call in FOLLOWS_LOCALE.finditer(re.sub(r"//[^\n]*", "", text)):
        yield Finding(path, text.count("\n", 0, call.start()) + 1, "a number that follows the locale",
                      "use base/decimal_text.h or base/parse_double.h")


def prose_is_checked(path):
    return not matches(os.path.dirname(path), PROSE_PENDING)


def check_prose(path, text):
    for fault in prose.faults(path, text):
        yield Finding(path, fault.line, fault.problem, fault.remedy)


def prose_counts(root):
    """Returns {folder: {problem: count}} of the whole tree, with folders that are not checked."""
    counts = collections.defaultdict(collections.Counter)
    for path in files_below(root):
        with contextlib.suppress(UnicodeDecodeError):
            for fault in prose.faults(path, (root / path).read_text(encoding="utf-8")):
                counts[os.path.dirname(path) or "."][fault.rule] += 1
    return counts


def check_prose_pending(root):
    """Checks that a folder leaves PROSE_PENDING as soon as it is clean, so that the table only shrinks."""
    counts = prose_counts(root)
    folders = {os.path.dirname(path) for path in files_below(root)}
    for pattern in PROSE_PENDING:
        covered = fnmatch.filter(folders, pattern)
        if covered and not any(counts[folder] for folder in covered):
            yield Finding("tools/tidy.py", 1, f"PROSE_PENDING lists {pattern}, which has no fault any more", "remove the entry")


def print_prose(root):
    counts = prose_counts(root)
    rules = prose.RULES
    print("".join(f"{rule:>14}" for rule in rules) + "  folder")
    for folder, found in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0])):
        pending = "" if prose_is_checked(f"{folder}/x") else "  (pending)"
        print("".join(f"{found[rule]:>14}" for rule in rules) + f"  {folder}{pending}")
    print("".join(f"{sum(found[rule] for found in counts.values()):>14}" for rule in rules) + "  in total")


def check_namespace(path, text):
    """A type of src/a/b is in hawser::a::b or, to be found by more folders, in a part of it, such as hawser::a."""
    folder = [part for part in path.split("/")[1:-1] if part != "absent"]
    if not path.startswith("src/") or not folder or "test" in folder or path.endswith("_testing.h"):
        return
    allowed = [NAMESPACES.get(part, part) for part in folder]
    for opened in NAMESPACE.finditer(text):
        inner = opened.group(1).split("::")[1:]
        if "detail" in inner:  # A public class whose members only the library uses.
            inner = inner[:inner.index("detail")]
        if inner != allowed[:len(inner)]:
            yield Finding(path, text.count("\n", 0, opened.start()) + 1, f"{opened.group(1)} is not the namespace of its folder",
                          f"use hawser::{'::'.join(allowed)} or a part of it")


def check_types(root):
    """Each type at namespace scope has one name in the tree, outside of tests."""
    places = collections.defaultdict(list)
    for path in files_below(root):
        if not path.startswith(("include/", "src/", "apps/")) or not path.endswith((".h", ".cpp")):
            continue
        if "/test/" in path or path.endswith(("_test.cpp", "_testing.h")) or matches(path, NAMES_OF_OTHERS):
            continue
        text = (root / path).read_text(encoding="utf-8")
        for found in TYPE.finditer(text):
            places[found.group(1)].append((path, text.count("\n", 0, found.start(1)) + 1))
    for name, found in places.items():
        first = found[0]
        for path, line in found[1:]:
            if path != first[0]:
                yield Finding(path, line, f"{name} is also a type of {first[0]}:{first[1]}", "give one of them a name of its own")


def check_cmake_layers(text):
    """Checks that DEPENDS in CMakeLists.txt has nothing that LAYERS does not allow."""
    for declared in LAYER_CALL.finditer(text):
        layer, depends = declared.group(1), DEPENDS.search(declared.group(2) or "")
        depends = depends.group(1).split() if depends else []
        line = text.count("\n", 0, declared.start(1)) + 1
        down = allowed_layers(layer)
        if down is None:
            yield Finding("CMakeLists.txt", line, f"{layer} is no known layer", "add it to LAYERS in tools/tidy.py")
            continue
        for target in depends:
            if not matches(target, down):
                yield Finding("CMakeLists.txt", line, f"the arrow from {layer} to {target} points up",
                              "drop the dependency")


def files_below(root):
    """Returns the text files of the project below `root`, as sorted relative paths."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not matches(name, SKIPPED_FOLDERS)]
        for name in names:
            path = pathlib.Path(folder, name)
            if path.suffix in TEXT_SUFFIXES and name not in SKIPPED_FILES and path.is_file():
                found.append(path.relative_to(root).as_posix())
    return sorted(found)


def check_tree(root):
    for path in files_below(root):
        try:
            text = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            yield Finding(path, 1, "not UTF-8", "save it as UTF-8")
            continue
        yield from check_file(path, text)
        if path == "CMakeLists.txt":
            yield from check_cmake_layers(text)
    yield from check_types(root)
    yield from check_prose_pending(root)


def compile_alone(compiler, root, path):
    """Compiles a file that only includes the header, twice."""
    header = path.split("/", 1)[1]
    command = [compiler, "-std=c++23", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic",
               "-Wno-missing-field-initializers", "-Werror",
               f"-I{root}/include"] + ([f"-I{root}/src"] if path.startswith("src/") else []) + ["-x", "c++", "-"]
    result = subprocess.run(command, input=f'#include "{header}"\n#include "{header}"\n', capture_output=True, text=True)
    if result.returncode == 0:
        return None
    # If the vendor's headers of a backend are not installed, the backend is not built either.
    missing = re.search(r"fatal error: '?([^':]+)'?(?: file not found|: No such file)", result.stderr)
    if missing and missing.group(1).startswith(VENDOR_HEADERS):
        return None
    first = re.search(r"(\S+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)", result.stderr)
    where = f" ({first.group(1)}:{first.group(2)}: {first.group(3)})" if first else f": {result.stderr.strip()}"
    return Finding(path, 1, f"does not compile alone{where}", "include what it uses")


def includes_first(root, header, files):
    """Returns whether the source beside `header` includes it first."""
    source = header.removesuffix(".h") + ".cpp"
    if source not in files:
        return False
    first = re.search(r'^#include [<"]([^>"]+)[>"]', (root / source).read_text(), re.MULTILINE)
    return first is not None and header == f"src/{first.group(1)}"


def check_headers(root, compiler):
    """Compiles each header alone, except headers that the source of the same name includes first: the build compiles
    these alone (the gcc preset has no precompiled header that would hide a missing include)."""
    files = set(files_below(root))
    headers = [path for path in sorted(files) if path.endswith(".h") and path.startswith(("include/", "src/"))
               and not path.endswith("_testing.h")]
    umbrella = "include/hawser/hawser.h"
    alone = [path for path in headers if path.startswith("include/") or not includes_first(root, path, files)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from filter(None, pool.map(lambda path: compile_alone(compiler, root, path), alone))
    if umbrella in headers:
        result = subprocess.run([compiler, "-std=c++23", "-E", f"-I{root}/include", "-x", "c++", str(root / umbrella)],
                                capture_output=True, text=True)
        count = result.stdout.count("\n")
        print(f"hawser.h: {count} preprocessed lines of at most {PREPROCESSED_LINES_MAX}")
        if count > PREPROCESSED_LINES_MAX:
            yield Finding(umbrella, 1, f"{count} preprocessed lines, more than {PREPROCESSED_LINES_MAX}",
                          "move what is heavy to src/, or forward-declare it")


def check_format(root, program):
    sources = [path for path in files_below(root) if path.endswith((".h", ".cpp"))]
    result = subprocess.run([program, "--dry-run", *sources], cwd=root, capture_output=True, text=True)
    seen = set()
    for place in re.finditer(r"^(\S+?):(\d+):\d+: warning: code should be clang-formatted", result.stderr, re.MULTILINE):
        if place.group(1) not in seen:  # One line a file is enough.
            seen.add(place.group(1))
            yield Finding(place.group(1), int(place.group(2)), "not as clang-format lays it", "run make format")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--headers", metavar="COMPILER")
    parser.add_argument("--format", action="store_true")
    parser.add_argument("--prose", action="store_true")
    arguments = parser.parse_args()
    root = arguments.root.resolve()

    if arguments.prose:
        print_prose(root)
        return 0
    if arguments.headers:
        findings = list(check_headers(root, arguments.headers))
    elif arguments.format:
        program = shutil.which("clang-format-19")
        if program is None:
            print("clang-format-19 is not installed")
            return SKIPPED
        findings = list(check_format(root, program))
    else:
        findings = list(check_tree(root))

    print("\n".join(map(str, findings)) if findings else "tidy")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
